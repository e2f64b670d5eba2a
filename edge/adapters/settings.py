"""Settings of the adapters: where readings enter and commands leave."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from edge.section import KIB, MIB, Section, fixed, key
from edge.section_types import BindHost, OptionalPath, Port, TopicFilter

_DEFAULT_PACKS: Final = ("zigbee2mqtt", "tasmota", "shelly", "esphome", "senml")
"""Those that apply without configuration."""
PACKS: Final = (
    *_DEFAULT_PACKS,
    *("pepoli", "chirpstack", "thethingsstack", "openmqttgateway", "rtl_433", "rtl_433_devices"),
)
"""Names of the mapping packs that come with the gateway. Those that are not named in `mappings.packs` are not read."""


class MqttSettings(Section):
    """MQTT: the embedded broker, or the connection to another broker."""

    enabled: bool = key(True, "Whether the gateway receives readings over MQTT.")
    host: BindHost = key("127.0.0.1", "Address of the embedded broker: a loopback address.")
    port: Port = key(1883, "TCP port of the embedded broker. 0: any free port.", basic=True)
    broker: str = key(
        "",
        'External broker to use instead of the embedded one: "mqtt://HOST[:1883]" or "mqtts://HOST[:8883]" (TLS).',
        basic=True,
    )
    version: Literal["3.1.1", "5"] = key("3.1.1", "MQTT protocol version of the connection to the broker.")
    client_id: str = key("", "Client identifier at the broker. Empty: generated once and stored in the data directory.")
    username: str = key("", "User name at the broker. Empty: none.", basic=True)
    password: str = key("", "Password at the broker. Prefer password_file or the environment.", secret=True)
    password_file: OptionalPath = key(None, "File whose first line is the password at the broker.", basic=True)
    ca_file: OptionalPath = key(
        None, "PEM file with the certificate authorities that may sign the broker's certificate. Empty: the system's."
    )
    cert_file: OptionalPath = key(None, "PEM file with the client certificate for the broker.")
    key_file: OptionalPath = key(None, "PEM file with the private key of the client certificate.")
    topics: tuple[TopicFilter, ...] = key(("#",), "Topic filters the gateway subscribes to.", basic=True)
    qos: int = key(1, "Quality of service of the gateway's subscriptions at the broker.", minimum=0, maximum=2)
    keepalive: int = key(
        30, "Heartbeat interval of the connection to the broker (MQTT keep-alive).", unit="s", minimum=1, maximum=65535
    )
    session_expiry: int = key(
        86_400,
        "How long the broker stores readings while the gateway is disconnected (MQTT 5; with 3.1.1 the broker "
        "decides). 0: every connection begins with a clean session.",
        unit="s",
        minimum=0,
        maximum=0xFFFF_FFFF,
    )
    reconnect_min: float = key(
        1.0,
        "First back-off before the gateway reconnects; it doubles with each attempt.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    reconnect_max: float = key(60.0, "Longest back-off between two attempts.", unit="s", minimum=0.1, maximum=86_400)
    max_inflight: int = key(
        256,
        "Readings of QoS 1 and 2 that the gateway accepts from the broker before it acknowledges them.",
        minimum=1,
        maximum=65535,
    )
    max_queued: int = key(
        10_000, "Readings that may wait in the adapter. It drops QoS 0 readings beyond this number.", minimum=1
    )
    max_queued_bytes: int = key(
        16 * MIB,
        "Size of these readings. Beyond it the embedded broker stops reading from devices until the adapter catches "
        "up (back-pressure).",
        unit="bytes",
        minimum=64 * KIB,
    )
    max_batch: int = fixed(
        100, "Readings with which a batch for the engine is full. A message is divided above 50 readings."
    )
    retry_min: float = fixed(0.2, "Seconds of the first back-off while the engine cannot accept an update.")
    retry_max: float = fixed(30.0, "Seconds of the longest such back-off.")
    max_connections: int = key(100, "Concurrent connections to the embedded broker.", minimum=1, maximum=10_000)
    max_connections_of_one: int = key(
        50,
        "Concurrent connections to the embedded broker from one remote address. The broker closes further ones.",
        minimum=1,
        maximum=10_000,
    )
    max_message: int = key(
        1 * MIB,
        "Largest packet that the embedded broker accepts. It disconnects a client that sends a larger one.",
        unit="bytes",
        minimum=KIB,
    )
    max_retained: int = key(
        10_000,
        "Retained messages that the embedded broker stores. Beyond this number it removes the oldest one of the "
        "client that has most.",
        minimum=0,
    )
    max_retained_bytes: int = key(
        16 * MIB,
        "Memory for retained messages in the embedded broker: payloads, topics and 1,000 bytes for each. Beyond it "
        "the same rule applies.",
        unit="bytes",
        minimum=KIB,
    )
    max_unread: int = key(
        4 * MIB,
        "Size of the messages that may wait in the embedded broker for a client that does not read. The broker "
        "disconnects a client beyond it.",
        unit="bytes",
        minimum=64 * KIB,
    )

    @field_validator("broker")
    @classmethod
    def _broker_url(cls, value: str) -> str:
        if not value:
            return value
        parts = urlsplit(value)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("must be mqtt://HOST, mqtt://HOST:PORT, mqtts://HOST or mqtts://HOST:PORT")
        if parts.username or parts.password:
            raise ValueError("must hold no credentials: use mqtt.username and mqtt.password_file")
        _ = parts.port  # raises ValueError if the port is not a number in its range
        return value


class SerialSettings(Section):
    """Serial ports. Mapping files declare the ports; these settings apply to all of them."""

    enabled: bool = key(True, "Whether the gateway opens the serial ports of mapping files.")
    reconnect: float = key(
        1.0,
        "Time between two attempts to open the port of a disconnected device.",
        unit="s",
        minimum=0.05,
        maximum=3600,
    )
    silence: float = key(
        0.25,
        "Time without a byte after which the gateway discards an incomplete frame.",
        unit="s",
        minimum=0.01,
        maximum=60,
    )
    max_frame: int = key(
        4 * KIB,
        "Longest frame, unless the declaration of the port sets its own limit.",
        unit="bytes",
        minimum=1,
        maximum=64 * KIB,
    )
    max_queued: int = key(
        1000, "Frames of all ports that may wait. Beyond this number the gateway stops reading the ports.", minimum=1
    )
    max_batch: int = fixed(
        100, "Readings with which a batch for the engine is full. A frame is divided above 50 readings."
    )
    retry_min: float = fixed(0.2, "Seconds of the first back-off while the engine cannot accept an update.")
    retry_max: float = fixed(30.0, "Seconds of the longest such back-off.")


class ModbusSettings(Section):
    """Modbus devices. Mapping files declare the devices; these settings apply to all of them."""

    enabled: bool = key(True, "Whether the gateway polls the Modbus devices of mapping files.")
    timeout: float = key(
        1.0,
        "Time to wait for a connection or a response, unless the declaration of the device sets its own.",
        unit="s",
        minimum=0.05,
        maximum=60,
    )
    reconnect: float = key(
        1.0,
        "Longest time until a device that does not answer is tried again. It doubles with each failure.",
        unit="s",
        minimum=0.05,
        maximum=3600,
    )
    reconnect_max: float = key(
        60.0, "Longest time between two attempts, after many failures.", unit="s", minimum=0.05, maximum=86_400
    )
    max_queued: int = key(
        1000,
        "Polls of all devices that may wait for the engine. Beyond this number, the gateway drops new ones.",
        minimum=1,
    )
    max_batch: int = fixed(
        100, "Readings with which a batch for the engine is full. A poll is divided above 50 readings."
    )
    retry_min: float = fixed(0.2, "Seconds of the first back-off while the engine cannot accept an update.")
    retry_max: float = fixed(30.0, "Seconds of the longest such back-off.")


class MappingsSettings(Section):
    """Mapping files, which turn payloads into observations."""

    dir: OptionalPath = key(None, "Directory of your own mapping files. Empty: DATA_DIR/mappings.", basic=True)
    packs: tuple[str, ...] = key(_DEFAULT_PACKS, "Bundled mapping packs of known devices that apply.", basic=True)
    reload_interval: float = key(
        2.0,
        "Time between two checks for changed mapping files. 0: the gateway reads them only at its start.",
        unit="s",
        minimum=0,
        maximum=3600,
    )
    max_payload: int = key(
        256 * KIB, "Largest payload that the gateway parses. Larger ones count as bad values.", unit="bytes", minimum=1
    )
    max_readings: int = key(
        1000,
        "Readings accepted from one payload. The gateway drops the others and lists them as a bad value.",
        minimum=1,
    )
    max_unmapped: int = fixed(1000, "Topics without a mapping that the gateway lists; the one silent longest goes.")
    max_bad_values: int = fixed(200, "Values that could not be parsed and that the gateway lists; the oldest goes.")

    @field_validator("packs")
    @classmethod
    def _known_packs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in PACKS]:
            raise ValueError(f'"{unknown[0]}" is not a mapping pack; the packs are {", ".join(PACKS)}')
        return value


class DiscoverySettings(Section):
    """Devices that announce themselves: Home Assistant MQTT discovery."""

    home_assistant: bool = key(
        False,
        "Whether announcements of devices (Home Assistant MQTT discovery) become mappings. Let only trusted clients "
        "publish them.",
    )
    prefix: str = key("homeassistant", "First level of the topics of announcements.")
    commands: bool = key(True, "Whether clients can set the values of announced entities (edge:desired).")
    max_entities: int = key(2000, "Announced entities of all devices.", minimum=1, maximum=100_000)
    max_bytes: int = key(4 * MIB, "Size of all announcements.", unit="bytes", minimum=KIB)
    max_device_entities: int = key(200, "Announced entities of one device.", minimum=1, maximum=100_000)
    max_device_bytes: int = key(256 * KIB, "Size of the announcements of one device.", unit="bytes", minimum=KIB)
    max_announcement: int = key(
        64 * KIB, "Largest announcement. The gateway ignores and lists larger ones.", unit="bytes", minimum=KIB
    )

    @field_validator("prefix")
    @classmethod
    def _level(cls, value: str) -> str:
        if not re.fullmatch(r"[^+#$\x00-\x1f/][^+#\x00-\x1f]*(?<!/)", value):
            raise ValueError("must be a topic without wildcards, and without a slash at its end")
        return value


class ObservationsSettings(Section):
    """How readings become observations in the graph."""

    time: Literal["always", "message", "never"] = key(
        "always",
        'Whether an observation has a time: "always" (from the message, else the time of arrival), "message" (only '
        'if the message contains it) or "never".',
    )


class ActuationSettings(Section):
    """Actuators: how fast messages to devices leave."""

    rate: float = key(100.0, "Rate limit of messages a second over all topics.", minimum=0.01, maximum=10_000)
    topic_rate: float = key(
        10.0,
        "Rate limit of messages a second to one topic. Of the messages between, only the newest is sent. An actuator "
        "may set its own limit (rate).",
        minimum=0.01,
        maximum=1000,
    )
    max_queued: int = key(
        10_000, "Topics that may have a waiting message, for example while the broker is disconnected.", minimum=1
    )
    desired_values: bool = key(
        True, "Whether clients that may update the default graph can set values at devices (edge:desired)."
    )


class HostSettings(Section):
    """Sensors of the gateway's host: temperatures, load, memory, disks, network."""

    enabled: bool = key(True, "Whether the gateway observes its host.", basic=True)
    interval: float = key(10.0, "Time between two rounds of readings.", unit="s", minimum=0.1, maximum=86_400)
    refresh: float = key(
        600.0,
        "Time after which an almost unchanged value is written again. Its new time shows that the value is current.",
        unit="s",
        minimum=0.1,
        maximum=86_400,
    )
    store: bool = key(False, "Whether these observations are also stored for the history.")
