"""MQTT side of the gateway: readings, commands, and the MQTT gate."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge import durable
from edge.adapters.broker import EmbeddedBroker
from edge.adapters.mqtt_adapter import MqttAdapter
from edge.adapters.mqtt_link import MqttLink
from edge.adapters.settings import MqttSettings
from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gates.mqtt import BrokerConnection, MqttGate, TokenAuth, UnhandledTopics
from edge.gates.report_following import ReportSource
from edge.gateway.announcing import Announcing
from edge.gateway.bind import listening, url_host
from edge.gateway.client_services import ClientServices
from edge.gateway.errors import StartError
from edge.gateway.mappings import Mappings
from edge.gateway.probes import connects
from edge.gateway.progress import Progress
from edge.gateway.watchdog import Component, Stalled
from edge.metrics import Metrics
from edge.protocol.access import Access
from edge.query_files import read_queries

if TYPE_CHECKING:
    from edge.gateway.sparkplug import Sparkplug
    from edge.security.tls import Tls

_log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds to wait for the embedded broker."""
_CLIENT_ID: Final = "mqtt-client-id"
"""File in the data directory with the gateway's client identifier at a broker."""

_SPARKPLUG: Final = "spBv1.0/"
"""Beginning of the topics of Sparkplug B, which another connection receives."""
_PACKET_OVERHEAD: Final = 512
"""Upper bound of the bytes of an MQTT packet without its payload: header, topic, properties."""


class Mqtt:
    """The broker, embedded or external, and the gateway's connections to it."""

    def __init__(
        self,
        settings: Settings,
        engine: Scheduler,
        services: ClientServices,
        mappings: Mappings,
        metrics: Metrics,
        *,
        health: Callable[[], Mapping[str, object]],
        streams: Callable[[], ReportSource | None],
        rights: Callable[[str], Access | None],
    ) -> None:
        """`health` returns the report that the gate publishes. `streams` returns the RDF streams; None without them.
        `rights` returns the rights of a registered client.
        """
        self._rights = rights
        self._settings = settings
        self._engine = engine
        self._services = services
        self._mappings = mappings
        self._metrics = metrics
        self._health = health
        self._streams = streams
        self._connection: MqttSettings
        self._unhandled_topics = UnhandledTopics(settings.mqtt_gate.root)
        self._progress = Progress(engine, "messages")
        self.endpoints: dict[str, str] = {}
        """Service to URL: "mqtt" is the broker, "mqtts" the embedded one with TLS."""
        self.parts: list[Component] = []
        """Components for the watchdog."""
        self.adapter: MqttAdapter | None = None
        self.broker: EmbeddedBroker | None = None
        self.gate: MqttGate | None = None
        self.sparkplug: Sparkplug | None = None
        self._announcing: Announcing

    @property
    def announcing(self) -> Announcing:
        """Announcements to Home Assistant."""
        return self._announcing

    @property
    def connected(self) -> bool:
        """Whether the adapter for readings is connected."""
        return self.adapter is not None and self.adapter.connected

    @property
    def state(self) -> str:
        """The adapter's connection for `/health`: "connected" only if the broker has accepted all topic filters."""
        if not self.connected:
            return "disconnected"
        return "connected" if self.adapter is not None and self.adapter.subscribed else "not subscribed"

    async def start(self, stack: AsyncExitStack) -> None:
        """Connect; `stack` stops it. Raises `StartError`."""
        if not self._settings.mqtt.broker:
            await self._start_broker(stack)
        adapter = await self._start_adapter(stack)
        if self.broker is not None:
            # Devices connect only after this, so none of their messages finds the broker without a subscriber.
            await _answered(lambda: adapter.subscribed)
            stack.push_async_callback(self.broker.drain, self._settings.shutdown.timeout * 0.3)
        await self._start_sparkplug(stack)
        timeout = self._settings.shutdown.timeout * 0.2
        self.parts.append(self._mappings.start_actuation(stack, self._connection, self._metrics, timeout))
        self.parts += self._announcing.start(stack, self._metrics, timeout)
        if self._settings.runs_mqtt_gate:
            await self._start_gate(stack)
        elif self._settings.mqtt_gate.enabled != "never":
            await self._log_no_gate()
        if self.broker is None:
            self.endpoints["mqtt"] = self._settings.mqtt.broker
        else:
            gate = self.gate
            await _answered(lambda: gate is None or gate.connected)
            await self._open_broker(self.broker, self._services.tls)

    async def _start_sparkplug(self, stack: AsyncExitStack) -> None:
        if not self._settings.sparkplug.enabled:
            return
        # Imported here: without edge nodes, the gateway saves the memory and start-up time.
        from edge.gateway.sparkplug import Sparkplug

        found = Sparkplug(self._settings, self._connection, self._engine, self._mappings, self._metrics)
        self.sparkplug = found
        await found.start(stack)
        self.parts.append(found.part)
        if self.broker is not None:
            await _answered(lambda: found.adapter.subscribed)

    # The embedded broker

    async def _start_broker(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        root = settings.mqtt_gate.root if settings.runs_mqtt_gate else ""
        auth = TokenAuth(self._services.guard, root) if settings.security.enabled else None
        self.broker = broker = EmbeddedBroker(settings.mqtt, auth)
        await broker.start()
        stack.push_async_callback(broker.stop)
        self.parts.append(Component("mqtt_broker", self._prove_broker, broker.restart))
        self._metrics.watch(
            "mqtt_refused", "Messages and subscriptions of clients that may not have them.", lambda: broker.refused
        )

    async def _open_broker(self, broker: EmbeddedBroker, tls: Tls | None) -> None:
        """Accept devices. The adapter is subscribed by now, so messages of QoS 0 sent at once are received too."""
        settings = self._settings
        await listening(broker.open, "mqtt.port", settings.mqtt.host, settings.mqtt.port)
        self.endpoints["mqtt"] = f"mqtt://{url_host(settings.mqtt.host)}:{broker.port}"
        if tls is not None:
            host, port = settings.security.host, settings.security.mqtts_port
            found = await listening(
                lambda: broker.open_secure(host, port, tls.context), "security.mqtts_port", host, port
            )
            self.endpoints["mqtts"] = f"mqtts://{url_host(host, tls.name)}:{found}"

    async def _prove_broker(self) -> None:
        adapter = self.adapter
        # The thread of the adapter retries by itself, so a lasting disconnection is the broker's fault.
        if adapter is not None and adapter.alive and not adapter.connected:
            raise Stalled("it does not serve the gateway's own connection")
        if self.broker is not None and "mqtt" in self.endpoints:
            settings, broker = self._settings, self.broker
            await connects(settings.mqtt.host, broker.port, tls=False)
            if broker.secure_port:
                await connects(settings.security.host, broker.secure_port, tls=True)

    # Readings in

    async def _start_adapter(self, stack: AsyncExitStack) -> MqttAdapter:
        try:
            self._connection = await asyncio.to_thread(self._make_connection)
            self._announcing = await asyncio.to_thread(self._make_announcing)
            adapter = await self._new_adapter()
        except OSError as error:
            raise StartError(f"mqtt: {error.strerror or error}") from error
        stack.push_async_callback(self._stop_adapter)
        self.parts.append(Component("mqtt", self._prove_adapter, self._restart_adapter))
        self._watch_adapter()
        return adapter

    def _make_connection(self) -> MqttSettings:
        settings, broker = self._settings, self.broker
        if broker is None:
            address: dict[str, object] = {"broker": settings.mqtt.broker}
        else:
            own = {"username": "gateway", "password": broker.own_secret, "password_file": None}
            address = {"broker": broker.own_url, **own}
        client_id = settings.mqtt.client_id or _client_id(settings.data_dir)
        topics = settings.mqtt.topics
        if settings.discovery.home_assistant:
            # First: brokers send the retained announcements in this order, before the values that need them.
            topics = (f"{settings.discovery.prefix}/+/+/config", f"{settings.discovery.prefix}/+/+/+/config", *topics)
        return settings.mqtt.model_copy(update={**address, "client_id": client_id, "topics": topics})

    def _make_announcing(self) -> Announcing:
        return Announcing(self._settings, self._engine, self._connection, self._mappings, self._rights)

    async def _new_adapter(self) -> MqttAdapter:
        # Read again for each new adapter: the previous one has stored more since the start.
        receipts = await asyncio.wrap_future(self._engine.receipts())
        settings = self._settings
        of_gate = (f"{settings.mqtt_gate.root}/",) if settings.runs_mqtt_gate else ()
        others = self._announcing.own_topics
        if settings.sparkplug.enabled:
            others = (*others, _SPARKPLUG)

        def check(topic: str) -> None:
            if not topic.startswith(others):
                self._unhandled_topics.check(topic)

        self.adapter = adapter = MqttAdapter(
            self._connection,
            self._mappings.ingest,
            receipts,
            check,
            (*of_gate, *others),
            self._mappings.discovery,
        )
        adapter.start()
        return adapter

    async def _stop_adapter(self) -> None:
        if self.adapter is not None:
            await asyncio.to_thread(self.adapter.stop, self._settings.shutdown.timeout * 0.4)

    async def _restart_adapter(self) -> None:
        await self._stop_adapter()
        await self._new_adapter()

    async def _prove_adapter(self) -> None:
        self._progress.prove(self.adapter)

    # The gate

    async def _start_gate(self, stack: AsyncExitStack) -> None:
        await self._new_gate()
        stack.push_async_callback(self._stop_gate)
        self.parts.append(Component("mqtt_gate", self._prove_gate, self._restart_gate))
        self._metrics.watch(
            "mqtt_gate_connected",
            "Whether clients are served over MQTT.",
            lambda: self.gate is not None and self.gate.connected,
        )

    async def _log_no_gate(self) -> None:
        """Log that there is no gate. A warning if there are continuous queries, because their results are missing."""
        queries = (await asyncio.to_thread(read_queries, self._settings.queries_dir)).queries
        _log.log(
            logging.WARNING if queries else logging.INFO,
            "mqtt_gate.closed",
            extra={
                "reason": "any client of this broker could read and change the graph; set security.enabled, or "
                'mqtt_gate.enabled = "always", or "queries" to publish only the results of continuous queries',
                "standing_queries": sorted(queries),
            },
        )

    async def _new_gate(self) -> None:
        settings = self._settings
        largest = settings.mqtt_gate.max_result
        if not settings.mqtt.broker:
            # The embedded broker would close the gateway's own connection for a larger packet.
            largest = min(largest, max(_PACKET_OVERHEAD, settings.mqtt.max_message - _PACKET_OVERHEAD))
        gate = MqttGate(
            self._services.sessions,
            settings.mqtt_gate.model_copy(update={"max_result": largest, "queries_dir": settings.queries_dir}),
            self._metrics,
            self._link,
            self._health,
            guard=self._services.guard,
            rate_limit=self._services.rate_limit,
            resume_registry=self._services.resume_registry,
            strays=self._unhandled_topics,
            query_timeout=settings.engine.query_timeout,
            stop_timeout=settings.shutdown.timeout * 0.2,
            streams=self._streams,
            serves_clients=settings.serves_mqtt_clients,
        )
        await gate.start()
        self.gate = gate

    def _link(self, wire: BrokerConnection) -> MqttLink:
        return MqttLink(
            self._connection,
            "mqtt_gate",
            "-gate",
            on_up=wire.opened,
            on_down=wire.closed,
            on_answer=wire.answered,
            prepare=wire.prepare,
        )

    async def _stop_gate(self) -> None:
        if self.gate is not None:
            await self.gate.stop()

    async def _restart_gate(self) -> None:
        await self._stop_gate()
        await self._new_gate()

    async def _prove_gate(self) -> None:
        if self.gate is not None and not self.gate.alive:
            raise Stalled("the thread of its connection has ended")
        if self.connected and self.gate is not None and not self.gate.connected:
            raise Stalled("it is not connected to the broker, and readings are")

    def _watch_adapter(self) -> None:
        ingest, watch = self._mappings.ingest, self._metrics.watch

        def of(name: str) -> Callable[[], float]:
            return lambda: float(getattr(self.adapter, name, 0))

        connected = "Whether the broker is connected and has accepted all filters of mqtt.topics: 1 or 0."
        watch("mqtt_connected", connected, of("subscribed"))
        watch("mqtt_received", "Messages that came in since the start.", of("received"))
        watch("mqtt_queued", "Messages that wait in the adapter.", of("queued"))
        watch("mqtt_dropped", "Messages of QoS 0 that found the queue full.", of("dropped"))
        watch("mqtt_duplicates", "Messages that came again after they had been stored.", of("duplicates"))
        watch("mqtt_readings", "Readings that messages held.", lambda: ingest.readings)
        watch("mqtt_unmapped", "Messages that no mapping was for.", lambda: ingest.unmapped.total)
        watch("mqtt_bad_values", "Values that could not be read.", lambda: ingest.bad_values.total)
        discovery = self._mappings.discovery
        entities = "Entities that devices have announced."
        watch("mqtt_announced_entities", entities, lambda: 0 if discovery is None else discovery.entities)
        faults = self._mappings.faults
        watch("mqtt_mapping_faults", "Mapping files and actuators that cannot be used.", lambda: len(faults()))


async def _answered(done: Callable[[], bool]) -> None:
    """Wait until the embedded broker serves the gateway's own connections. Raises `StartError`."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not done():  # noqa: ASYNC110 - the connections have their own threads
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise StartError(f"mqtt: the embedded broker did not answer within {_PATIENCE:g} s; start again") from None


def _client_id(data_dir: Path) -> str:
    """Return the client identifier, created once: brokers store messages under it while the gateway is offline."""
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
        durable.write(file, f"{name}\n".encode())
    except OSError as error:
        _log.error("mqtt.client_id_not_kept", extra={"file": str(file), "reason": str(error)})
    return name
