"""Everything that goes through an MQTT broker: readings in, commands out, and the MQTT gate."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from ssl import SSLContext
from typing import Final

from edge.adapters import settings as adapters
from edge.adapters.broker import EmbeddedBroker
from edge.adapters.mqtt import MqttAdapter
from edge.adapters.mqtt_link import Link
from edge.config import Settings, read_password
from edge.config.parts import part
from edge.engine import Scheduler
from edge.gates.guard import Guard
from edge.gates.mqtt import MqttGate, Visitors
from edge.gates.parking import Parking
from edge.gates.settings import MqttGateSettings
from edge.gateway.errors import StartError
from edge.gateway.listening import listening, url_host
from edge.gateway.mappings import Mappings
from edge.metrics import Metrics

_log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds."""
_CLIENT_ID: Final = "mqtt-client-id"
"""File in the data directory with the name the gateway goes by at a broker."""

_PACKET_OVERHEAD: Final = 512
"""Bytes of an MQTT packet beside its payload: header, topic, properties."""


class Mqtt:
    """The broker, embedded or not, and the gateway's connections to it."""

    def __init__(self, settings: Settings, engine: Scheduler, mappings: Mappings, metrics: Metrics) -> None:
        self._settings = settings
        self._engine = engine
        self._mappings = mappings
        self._metrics = metrics
        self.endpoints: dict[str, str] = {}
        """Service to URL: "mqtt" is the broker, "mqtts" the embedded one with TLS."""
        self.adapter: MqttAdapter | None = None
        self.broker: EmbeddedBroker | None = None
        self.gate: MqttGate | None = None

    @property
    def connected(self) -> bool:
        """Whether readings come in."""
        return self.adapter is not None and self.adapter.connected

    async def start(
        self,
        stack: AsyncExitStack,
        guard: Guard,
        parking: Parking,
        health: Callable[[], Mapping[str, object]],
        tls: SSLContext | None,
    ) -> None:
        """Connect; `stack` ends it. `health` is what the gate publishes. `tls`: of the embedded broker's secure port.

        Raises `StartError`.
        """
        broker = await self._start_broker(stack, guard)
        try:
            connection = await asyncio.to_thread(self._connection, broker)
            self.adapter = adapter = MqttAdapter(connection, self._mappings.intake, self._engine.receipts())
        except OSError as error:
            raise StartError(f"mqtt: a certificate file cannot be used: {error.strerror or error}") from error
        await self._start_adapter(stack, adapter)
        if broker is None:
            self.endpoints["mqtt"] = self._settings.mqtt.broker
        else:
            await self._open_broker(stack, broker, adapter, tls)
        await self._start_actuation(stack, connection)
        if self._settings.serves_mqtt_clients:
            await self._start_gate(stack, connection, guard, parking, health)

    async def _start_broker(self, stack: AsyncExitStack, guard: Guard) -> EmbeddedBroker | None:
        settings = self._settings
        if settings.mqtt.broker:
            return None
        root = settings.mqtt_gate.root if settings.serves_mqtt_clients else ""
        door = Visitors(guard, root) if settings.security.enabled else None
        self.broker = broker = EmbeddedBroker(part(adapters.BrokerSettings, settings.mqtt), door)
        await broker.start()
        stack.push_async_callback(broker.stop)
        self._metrics.watch(
            "mqtt_refused", "Messages and subscriptions of clients that may not have them.", lambda: broker.refused
        )
        return broker

    def _connection(self, broker: EmbeddedBroker | None) -> adapters.MqttSettings:
        settings = self._settings
        if broker is None:
            address = {"broker": settings.mqtt.broker, "password": read_password(settings.mqtt)}
        else:
            address = {"broker": broker.own_url, "username": "gateway", "password": broker.own_secret}
        return part(
            adapters.MqttSettings,
            settings.mqtt,
            **address,
            client_id=settings.mqtt.client_id or _client_id(settings.data_dir),
            own_topics=f"{settings.mqtt_gate.root}/" if settings.serves_mqtt_clients else "",
        )

    async def _start_adapter(self, stack: AsyncExitStack, adapter: MqttAdapter) -> None:
        self._watch_adapter(adapter)
        adapter.start()
        stack.push_async_callback(asyncio.to_thread, adapter.stop, self._settings.shutdown.timeout * 0.4)

    async def _open_broker(
        self, stack: AsyncExitStack, broker: EmbeddedBroker, adapter: MqttAdapter, tls: SSLContext | None
    ) -> None:
        settings = self._settings
        await _subscribed(adapter)
        stack.push_async_callback(broker.drain, settings.shutdown.timeout * 0.3)
        await listening(broker.open, "mqtt.port", settings.mqtt.host, settings.mqtt.port)
        self.endpoints["mqtt"] = f"mqtt://{url_host(settings.mqtt.host)}:{broker.port}"
        if tls is not None:
            host, port = settings.security.host, settings.security.mqtts_port
            found = await listening(lambda: broker.open_secure(host, port, tls), "security.mqtts_port", host, port)
            self.endpoints["mqtts"] = f"mqtts://{url_host(host)}:{found}"

    async def _start_actuation(self, stack: AsyncExitStack, connection: adapters.MqttSettings) -> None:
        actuation, watch = self._mappings.actuation, self._metrics.watch
        watch("actuation_connected", "Whether the broker takes messages of actuators.", lambda: actuation.connected)
        watch("actuation_sent", "Messages of actuators that the broker took.", lambda: actuation.sent)
        watch("actuation_queued", "Messages of actuators that wait.", lambda: actuation.queued)
        watch("actuation_conflated", "Messages that a newer one replaced.", lambda: actuation.conflated)
        watch("actuation_failed", "Messages that could not be made or sent.", lambda: actuation.failed)
        actuation.start(connection)
        stack.push_async_callback(asyncio.to_thread, actuation.stop, self._settings.shutdown.timeout * 0.2)

    async def _start_gate(
        self,
        stack: AsyncExitStack,
        connection: adapters.MqttSettings,
        guard: Guard,
        parking: Parking,
        health: Callable[[], Mapping[str, object]],
    ) -> None:
        settings = self._settings
        largest = settings.mqtt_gate.max_result
        if not settings.mqtt.broker:
            largest = min(largest, max(_PACKET_OVERHEAD, settings.mqtt.max_message - _PACKET_OVERHEAD))
        gate = MqttGate(
            self._engine,
            part(
                MqttGateSettings,
                settings.mqtt_gate,
                max_result=largest,
                query_timeout=settings.engine.query_timeout,
                queries_dir=settings.queries_dir,
                stop_timeout=settings.shutdown.timeout * 0.2,
            ),
            self._metrics,
            lambda wire: Link(
                connection,
                "mqtt_gate",
                "-gate",
                on_up=wire.opened,
                on_down=wire.closed,
                on_answer=wire.answered,
                prepare=wire.prepare,
            ),
            health,
            guard=guard,
            parking=parking,
        )
        await gate.start()
        self.gate = gate
        stack.push_async_callback(gate.stop)
        self._metrics.watch("mqtt_gate_connected", "Whether clients are served over MQTT.", lambda: gate.connected)

    def _watch_adapter(self, adapter: MqttAdapter) -> None:
        intake, watch = self._mappings.intake, self._metrics.watch
        watch("mqtt_connected", "Whether the broker is connected: 1 or 0.", lambda: adapter.connected)
        watch("mqtt_received", "Messages that came in since the start.", lambda: adapter.received)
        watch("mqtt_queued", "Messages that wait in the adapter.", lambda: adapter.queued)
        watch("mqtt_dropped", "Messages of QoS 0 that found the queue full.", lambda: adapter.dropped)
        watch("mqtt_duplicates", "Messages that came again after they had been stored.", lambda: adapter.duplicates)
        watch("mqtt_readings", "Readings that messages held.", lambda: intake.readings)
        watch("mqtt_unmapped", "Messages that no mapping was for.", lambda: intake.unmapped.total)
        watch("mqtt_bad_values", "Values that could not be read.", lambda: intake.bad_values.total)
        faults = self._mappings.faults
        watch("mqtt_mapping_faults", "Mapping files and actuators that cannot be used.", lambda: len(faults()))


async def _subscribed(adapter: MqttAdapter) -> None:
    """Wait until the embedded broker has somebody to hand readings to. Raises `StartError`."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not adapter.subscribed:  # noqa: ASYNC110 - the adapter works on threads of its own
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise StartError(f"mqtt: the embedded broker did not answer within {_PATIENCE:g} s; start again") from None


def _client_id(data_dir: Path) -> str:
    """The name at the broker, made once: a broker keeps under it what came while the gateway was away."""
    file = data_dir / _CLIENT_ID
    try:
        if name := file.read_text(encoding="utf-8").strip():
            return name
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        _log.warning("mqtt.client_id_unreadable", extra={"file": str(file), "reason": str(error)})
    name = f"sepa-edge-{uuid.uuid4().hex[:12]}"
    try:
        file.write_text(name + "\n", encoding="utf-8")
    except OSError as error:
        _log.error("mqtt.client_id_not_kept", extra={"file": str(file), "reason": str(error)})
    return name
