"""Root model of the settings: every section with its defaults. Keys that are not here are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from edge.adapters.settings import (
    ActuationSettings,
    DiscoverySettings,
    HostSettings,
    MappingsSettings,
    ModbusSettings,
    MqttSettings,
    ObservationsSettings,
    SerialSettings,
)
from edge.announce.settings import AnnounceSettings
from edge.automation.settings import AutomationSettings
from edge.config.profiles import DEFAULT, Profile
from edge.data_directory import default_data_dir
from edge.engine.settings import EngineSettings
from edge.gates.settings import (
    CoapGateSettings,
    HttpGateSettings,
    LimitSettings,
    MqttGateSettings,
    SessionsSettings,
    SubscriptionsSettings,
    WsGateSettings,
)
from edge.outbox.settings import OffloadSettings, OutboxSettings
from edge.recent.settings import RecentSettings
from edge.section import Section, key
from edge.section_types import DirPath, OptionalPath
from edge.security.settings import IssuerSettings, SecuritySettings
from edge.sparkplug.settings import SparkplugSettings
from edge.streams.settings import StreamSettings


class LogSettings(Section):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "Lowest level that is logged.", basic=True)
    format: Literal["auto", "text", "json"] = key("auto", 'Line format. "auto": text on a terminal, JSON elsewhere.')


class WatchdogSettings(Section):
    """The watchdog, which checks that all components make progress: gates, adapters, the engine."""

    interval: float = key(
        10.0,
        "Time between two checks. A component has as much time to prove its progress.",
        unit="s",
        minimum=0.05,
        maximum=600,
    )
    stall_after: float = key(
        30.0,
        "Time without a proof of progress after which a component is restarted.",
        unit="s",
        minimum=0.05,
        maximum=3600,
    )
    end_after: float = key(
        300.0,
        "Time after which the gateway ends with exit code 1, so that systemd restarts it, if a stalled component "
        "cannot be restarted alone: the engine, the event loop. 0: never.",
        unit="s",
        minimum=0,
        maximum=86_400,
    )


class ApplianceSettings(Section):
    """The system around the gateway, if it is an image of the gateway."""

    update_directory: OptionalPath = key(
        None,
        "Directory through which the system takes updates that clients send over HTTP. Images set it. Empty: clients"
        " cannot send updates.",
    )


class ShutdownSettings(Section):
    """How the gateway stops."""

    timeout: float = key(
        5.0,
        "Time for draining queues and notifying clients before the process ends.",
        unit="s",
        minimum=0.1,
        maximum=300,
    )


class Settings(Section):
    """All settings of the gateway."""

    data_dir: DirPath = key(
        default_data_dir,
        "Directory of everything that must survive a restart. The gateway creates it if it does not exist.",
        basic=True,
        default_text="$STATE_DIRECTORY (systemd), else $XDG_STATE_HOME/sepa-edge, else ~/.local/state/sepa-edge",
    )
    profile: Profile = key(
        DEFAULT,
        "Size of the machine, which sets the limits below. A key that is set overrides its profile.",
        basic=True,
    )
    sessions: SessionsSettings = SessionsSettings()
    http: HttpGateSettings = HttpGateSettings()
    ws: WsGateSettings = WsGateSettings()
    subscriptions: SubscriptionsSettings = SubscriptionsSettings()
    mqtt: MqttSettings = MqttSettings()
    mqtt_gate: MqttGateSettings = MqttGateSettings()
    coap: CoapGateSettings = CoapGateSettings()
    limits: LimitSettings = LimitSettings()
    engine: EngineSettings = EngineSettings()
    serial: SerialSettings = SerialSettings()
    modbus: ModbusSettings = ModbusSettings()
    mappings: MappingsSettings = MappingsSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    sparkplug: SparkplugSettings = SparkplugSettings()
    announce: AnnounceSettings = AnnounceSettings()
    observations: ObservationsSettings = ObservationsSettings()
    actuation: ActuationSettings = ActuationSettings()
    automation: AutomationSettings = AutomationSettings()
    host: HostSettings = HostSettings()
    outbox: OutboxSettings = OutboxSettings()
    offload: OffloadSettings = OffloadSettings()
    recent: RecentSettings = RecentSettings()
    streams: StreamSettings = StreamSettings()
    security: SecuritySettings = SecuritySettings()
    issuer: IssuerSettings = IssuerSettings()
    log: LogSettings = LogSettings()
    watchdog: WatchdogSettings = WatchdogSettings()
    appliance: ApplianceSettings = ApplianceSettings()
    shutdown: ShutdownSettings = ShutdownSettings()

    @property
    def tls_dir(self) -> Path:
        """Directory of the certificates that the gateway generates."""
        return self.data_dir / "tls"

    @property
    def mappings_dir(self) -> Path:
        """Directory of the operator's own mapping files."""
        return self.mappings.dir or self.data_dir / "mappings"

    @property
    def rules_dir(self) -> Path:
        """Directory of the rules."""
        return self.automation.dir or self.data_dir / "rules"

    @property
    def queries_dir(self) -> Path:
        """Directory of the continuous queries."""
        return self.mqtt_gate.queries_dir or self.data_dir / "queries"

    @property
    def serves_mqtt_clients(self) -> bool:
        """Whether the MQTT gate serves clients."""
        wanted = self.mqtt_gate.enabled
        # The embedded broker accepts only local connections without security. At an external broker every
        # publisher could change the graph, so "auto" requires tokens there.
        safe = not self.mqtt.broker or self.security.enabled
        return self.mqtt.enabled and (wanted == "always" or (wanted == "auto" and safe))

    @property
    def runs_mqtt_gate(self) -> bool:
        """Whether the MQTT gate runs: for clients, or only to publish the results of continuous queries."""
        return self.serves_mqtt_clients or (self.mqtt.enabled and self.mqtt_gate.enabled == "queries")
