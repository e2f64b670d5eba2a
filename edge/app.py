"""Composition: builds the house from its settings, and takes it down in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from edge import __version__, endpoints
from edge.adapters import settings as adapters
from edge.adapters.actuation import Actuation
from edge.adapters.broker import EmbeddedBroker
from edge.adapters.files import MappingFiles
from edge.adapters.host import HostAdapter
from edge.adapters.intake import Intake
from edge.adapters.mqtt import MqttAdapter
from edge.adapters.mqtt_link import Link
from edge.adapters.observations import Observations
from edge.config import Settings, read_password
from edge.config.keys import default_data_dir
from edge.engine import EngineSettings, Scheduler, open_engine
from edge.engine.datadir import DataDirectoryRefused
from edge.engine.performance import Figures
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.http import HttpGate, Views
from edge.gates.mqtt import MqttGate
from edge.gates.settings import CoapGateSettings, HttpGateSettings, MqttGateSettings, WsGateSettings
from edge.gates.ws import WsGate
from edge.loader import load_document
from edge.mapping.errors import MappingError
from edge.mapping.mapper import Mapper
from edge.mapping.outcome import Declared
from edge.mapping.reading import XSD_STRING, Reading
from edge.metrics import Costs, Metrics
from edge.protocol.errors import EdgeError, NotReady

if TYPE_CHECKING:
    from edge.security.security import Security
    from edge.security.tls import Tls

_log = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds."""
_CLIENT_ID: Final = "mqtt-client-id"
"""File in the data directory with the name the gateway goes by at a broker."""

_PACKET_OVERHEAD: Final = 512
"""Bytes of an MQTT packet beside its payload: header, topic, properties."""

_Settings = TypeVar("_Settings")


class StartError(EdgeError):
    """The gateway cannot start as it is set up: a port in use, a data directory that cannot be used."""

    error: ClassVar[str] = "start_refused"
    status_code: ClassVar[int] = 503


class StopError(EdgeError):
    """The gateway ended, and not everything that waited was done."""

    error: ClassVar[str] = "stop_failed"


def part(kind: type[_Settings], section: object, **others: object) -> _Settings:
    """The settings of one part of the house: keys of the same name from a section, and `others`."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass, which TypeVar cannot say
    found: dict[str, Any] = {name: getattr(section, name) for name in names if hasattr(section, name)}
    return kind(**{**found, **others})


class Gateway:
    """One gateway. `async with Gateway(settings) as gateway:` has it run in the current event loop.

    Several can live in one process, each with its data directory and ports of its own (0).
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.endpoints: dict[str, str] = {}
        """Service ("http", "ws", "https", "wss", "mqtt", "coap") to URL, once it runs; what endpoints.json holds."""
        self.metrics = Metrics()
        self._engine: Scheduler | None = None
        self._intake: Intake | None = None
        self._files: MappingFiles | None = None
        self._mqtt: MqttAdapter | None = None
        self._mqtt_gate: MqttGate | None = None
        self._actuation: Actuation | None = None
        self._security: Security | None = None
        self._tls: Tls | None = None
        self._began = time.monotonic()
        self._stack = AsyncExitStack()
        self._ready = False

    @property
    def is_default_data_dir(self) -> bool:
        """Whether other commands find this gateway without being told the data directory."""
        return self.settings.data_dir.absolute() == default_data_dir().absolute()

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; returns when clients are served and the endpoints file is written.

        Raises `StartError`; nothing runs then, and nothing that was stored has changed.
        """
        self._began = time.monotonic()
        try:
            engine = await self._start_engine()
            await self._start_security()
            await self._start_gates(engine)
            await self._start_adapters(engine)
            await asyncio.to_thread(self._write_endpoints)
        except BaseException:
            await self.stop()
            raise
        self._ready = True
        _log.info(
            "gateway.ready",
            extra={**self.endpoints, "version": __version__, "seconds": round(time.monotonic() - self._began, 2)},
        )

    def _write_endpoints(self) -> None:
        """Tell other commands where to look. Who has a full disk needs a gateway all the more, so it starts without."""
        try:
            endpoints.write(self.settings.data_dir, self.endpoints)
        except OSError as error:
            _log.error("endpoints.not_written", extra={"reason": str(error)})
        else:
            self._stack.callback(endpoints.remove, self.settings.data_dir)

    async def stop(self) -> None:
        """Take in nothing new, finish what waits, tell the clients, store everything. Nothing if it does not run."""
        self._ready = False
        await self._stack.aclose()

    async def _start_engine(self) -> Scheduler:
        settings = self.settings
        try:
            engine = await asyncio.to_thread(
                open_engine,
                settings.data_dir,
                part(EngineSettings, settings.engine),
                load=load_document,
            )
        except DataDirectoryRefused as error:
            raise StartError(error.description) from error
        self._stack.push_async_callback(self._close_engine, engine)
        self._engine = engine
        self.metrics.watch_engine(
            triples=lambda: engine.quads,
            pending_updates=lambda: engine.pending_updates,
            journal_sequence=lambda: engine.sequence,
            spus=lambda: engine.spus,
            pending_timers=lambda: engine.pending_timers,
        )
        self.metrics.watch_costs(lambda: _costs(engine.figures))
        return engine

    async def _close_engine(self, engine: Scheduler) -> None:
        if not await asyncio.to_thread(engine.close, self.settings.shutdown.timeout):
            raise StopError("The engine did not finish what waited; what was acknowledged is stored")

    async def _start_security(self) -> None:
        settings = self.settings.security
        if not settings.enabled:
            return
        # Memory and time that only who wants it pays for.
        from edge.security.security import Security, SecuritySettings
        from edge.security.tls import Tls

        try:
            security = await asyncio.to_thread(Security, self.settings.data_dir, part(SecuritySettings, settings))
            self._stack.callback(security.close)
            tls = await asyncio.to_thread(Tls, self.settings.tls_dir, settings.cert_file, settings.key_file)
        except EdgeError as error:
            raise StartError(f"security: {error.description}") from error
        self._security, self._tls = security, tls
        for watch in (security.guard.run(), tls.run()):
            self._stack.push_async_callback(_cancelled, asyncio.create_task(watch))

    @property
    def _guard(self) -> Guard:
        return OPEN_GUARD if self._security is None else self._security.guard

    async def _start_gates(self, engine: Scheduler) -> None:
        http, ws, secure = self.settings.http, self.settings.ws, self.settings.security
        await self._start_ws(engine, ws.host, ws.port)
        await self._start_http(engine, http.host, http.port)
        if self._tls is not None:
            await self._start_ws(engine, secure.host, secure.wss_port, self._tls.context)
            await self._start_http(engine, secure.host, secure.https_port, self._tls.context)
        if self.settings.coap.enabled:
            await self._start_coap(engine)

    async def _start_ws(self, engine: Scheduler, host: str, port: int, tls: SSLContext | None = None) -> None:
        settings = self.settings
        gate = WsGate(
            engine,
            part(
                WsGateSettings,
                settings.ws,
                host=host,
                port=port,
                query_timeout=settings.engine.query_timeout,
                close_timeout=settings.shutdown.timeout * 0.2,
            ),
            self.metrics,
            guard=self._guard,
            tls=tls,
        )
        if tls is None:
            found = await _listening(gate.start, "ws", host, port)
            self.endpoints["ws"] = f"ws://{_host(host)}:{found}/subscribe"
        else:
            found = await _listening(gate.start, "security", host, port, "wss_port")
            self.endpoints["wss"] = f"wss://{_host(host)}:{found}/secure/subscribe"
        self._stack.push_async_callback(gate.stop)

    async def _start_http(self, engine: Scheduler, host: str, port: int, tls: SSLContext | None = None) -> None:
        settings = self.settings
        gate = HttpGate(
            engine,
            part(
                HttpGateSettings,
                settings.http,
                host=host,
                port=port,
                query_timeout=settings.engine.query_timeout,
                shutdown_timeout=settings.shutdown.timeout * 0.2,
            ),
            self.metrics,
            self._views(),
            guard=self._guard,
            authority=self._security.authority if self._security is not None else None,
            tls=tls,
        )
        if tls is None:
            found = await _listening(gate.start, "http", host, port)
            self.endpoints["http"] = f"http://{_host(host)}:{found}"
        else:
            found = await _listening(gate.start, "security", host, port, "https_port")
            self.endpoints["https"] = f"https://{_host(host)}:{found}"
        self._stack.push_async_callback(gate.stop)

    async def _start_coap(self, engine: Scheduler) -> None:
        # Memory and time that only who wants it pays for.
        from edge.gates.coap import CoapGate

        coap = self.settings.coap
        settings = part(CoapGateSettings, coap, query_timeout=self.settings.engine.query_timeout)
        gate = CoapGate(engine, settings, self.metrics, self._take_reading, guard=self._guard)
        found = await _listening(gate.start, "coap", coap.host, coap.port)
        self.endpoints["coap"] = f"coap://{_host(coap.host)}:{found}"
        self._stack.push_async_callback(gate.stop)

    async def _take_reading(self, topic: str, payload: bytes) -> int:
        intake = self._intake
        if intake is None:
            raise NotReady(
                "No readings are taken: the gateway is starting, or mqtt.enabled is off and with it the mappings"
            )

        def take() -> int:
            arrivals = intake.read(topic, payload, datetime.now(UTC))
            if arrivals:
                intake.write(arrivals)
            return len(arrivals)

        return await asyncio.to_thread(take)

    async def _start_adapters(self, engine: Scheduler) -> None:
        settings = self.settings
        observations = Observations(engine, part(adapters.ObservationsSettings, settings.observations))
        await asyncio.to_thread(observations.start)
        self._stack.callback(observations.close)
        if settings.mqtt.enabled:
            await self._start_mqtt(engine, observations)
        if settings.host.enabled:
            host = HostAdapter(part(adapters.HostSettings, settings.host), observations)
            self.metrics.watch("host_readings", "Readings of the gateway's own sensors.", lambda: host.readings)
            host.start()
            self._stack.push_async_callback(_in_thread, host.stop, settings.shutdown.timeout * 0.2)

    async def _start_mqtt(self, engine: Scheduler, observations: Observations) -> None:
        settings = self.settings
        mappings = part(adapters.MappingsSettings, settings.mappings, dir=settings.mappings_dir)

        def changed(mapper: Mapper) -> None:
            actuation.follow(mapper.actuators)
            observations.declare(_as_reading(declared) for declared in mapper.declared())

        try:
            files = await asyncio.to_thread(MappingFiles, mappings, changed)
        except MappingError as error:
            raise StartError(f"mappings.packs: {error}") from error
        self._files = files
        self._intake = intake = Intake(lambda: files.mapper, observations, mappings)
        actuation = Actuation(engine, part(adapters.ActuationSettings, settings.actuation), intake.bad_values)
        self._actuation = actuation
        await asyncio.to_thread(changed, files.mapper)
        files.start()
        self._stack.push_async_callback(_in_thread, files.stop)
        url, broker = settings.mqtt.broker, None
        if not url:
            broker = EmbeddedBroker(part(adapters.BrokerSettings, settings.mqtt))
            await broker.start()
            self._stack.push_async_callback(broker.stop)
            url = broker.own_url
        connection = part(
            adapters.MqttSettings,
            settings.mqtt,
            broker=url,
            client_id=settings.mqtt.client_id or _client_id(settings.data_dir),
            password=read_password(settings.mqtt),
            own_topics=f"{settings.mqtt_gate.root}/" if settings.serves_mqtt_clients else "",
        )
        try:
            adapter = MqttAdapter(connection, intake, engine.receipts())
        except OSError as error:
            raise StartError(f"mqtt: a certificate file cannot be used: {error.strerror or error}") from error
        self._mqtt = adapter
        self._watch_mqtt(adapter, intake)
        self._watch_actuation(actuation)
        adapter.start()
        self._stack.push_async_callback(_in_thread, adapter.stop, settings.shutdown.timeout * 0.4)
        if broker is None:
            self.endpoints["mqtt"] = url
        else:
            await _subscribed(adapter)
            await _listening(broker.open, "mqtt", settings.mqtt.host, settings.mqtt.port)
            self._stack.push_async_callback(broker.drain, settings.shutdown.timeout * 0.3)
            self.endpoints["mqtt"] = f"mqtt://{_host(settings.mqtt.host)}:{broker.port}"
        actuation.start(connection)
        self._stack.push_async_callback(_in_thread, actuation.stop, settings.shutdown.timeout * 0.2)
        if settings.serves_mqtt_clients:
            await self._start_mqtt_gate(engine, connection)

    async def _start_mqtt_gate(self, engine: Scheduler, connection: adapters.MqttSettings) -> None:
        settings = self.settings
        largest = settings.mqtt_gate.max_result
        if not settings.mqtt.broker:
            largest = min(largest, max(_PACKET_OVERHEAD, settings.mqtt.max_message - _PACKET_OVERHEAD))
        gate = MqttGate(
            engine,
            part(
                MqttGateSettings,
                settings.mqtt_gate,
                max_result=largest,
                query_timeout=settings.engine.query_timeout,
                queries_dir=settings.queries_dir,
                stop_timeout=settings.shutdown.timeout * 0.2,
            ),
            self.metrics,
            lambda wire: Link(
                connection,
                "mqtt_gate",
                "-gate",
                on_up=wire.opened,
                on_down=wire.closed,
                on_answer=wire.answered,
                prepare=wire.prepare,
            ),
            self._health,
            guard=self._guard,
        )
        await gate.start()
        self._mqtt_gate = gate
        self._stack.push_async_callback(gate.stop)
        self.metrics.watch("mqtt_gate_connected", "Whether clients are served over MQTT.", lambda: gate.connected)

    def _views(self) -> Views:
        return Views(
            ready=lambda: self._ready and self._engine is not None and self._engine.ready,
            fault=self._fault,
            health=self._health,
            endpoints=lambda: self.endpoints,
            unmapped=lambda: self._intake.unmapped.listed() if self._intake is not None else [],
            bad_values=lambda: self._intake.bad_values.listed() if self._intake is not None else [],
        )

    def _fault(self) -> str:
        """What is wrong though requests are taken; empty: nothing."""
        engine, limit = self._engine, self.settings.engine.stall_after
        if engine is not None and engine.busy_seconds > limit:
            return (
                f"Updates have not moved on for {engine.busy_seconds:.0f} s (engine.stall_after is {limit:g} s): one "
                "update or subscription takes that long; wait for it, or restart the gateway"
            )
        return ""

    def _health(self) -> Mapping[str, object]:
        health: dict[str, object] = {
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - self._began),
            "pending_updates": self._engine.pending_updates if self._engine is not None else 0,
            "pending_timers": self._engine.pending_timers if self._engine is not None else 0,
        }
        if self._engine is not None and self._engine.storage_failing:
            health["storage"] = self._engine.storage_failing
        if self._mqtt is not None:
            health["mqtt"] = "connected" if self._mqtt.connected else "disconnected"
        if self._files is not None:
            health["mapping_faults"] = self._mapping_faults()
        if self._mqtt_gate is not None:
            health["mqtt_gate"] = "connected" if self._mqtt_gate.connected else "disconnected"
            health["query_faults"] = self._mqtt_gate.faults()
        return health

    def _mapping_faults(self) -> list[dict[str, object]]:
        files = self._files.faults() if self._files is not None else []
        return files + (self._actuation.faults() if self._actuation is not None else [])

    def _watch_actuation(self, actuation: Actuation) -> None:
        watch = self.metrics.watch
        watch("actuation_connected", "Whether the broker takes messages of actuators.", lambda: actuation.connected)
        watch("actuation_sent", "Messages of actuators that the broker took.", lambda: actuation.sent)
        watch("actuation_queued", "Messages of actuators that wait.", lambda: actuation.queued)
        watch("actuation_conflated", "Messages that a newer one replaced.", lambda: actuation.conflated)
        watch("actuation_failed", "Messages that could not be made or sent.", lambda: actuation.failed)

    def _watch_mqtt(self, adapter: MqttAdapter, intake: Intake) -> None:
        watch = self.metrics.watch
        watch("mqtt_connected", "Whether the broker is connected: 1 or 0.", lambda: adapter.connected)
        watch("mqtt_received", "Messages that came in since the start.", lambda: adapter.received)
        watch("mqtt_queued", "Messages that wait in the adapter.", lambda: adapter.queued)
        watch("mqtt_dropped", "Messages of QoS 0 that found the queue full.", lambda: adapter.dropped)
        watch("mqtt_duplicates", "Messages that came again after they had been stored.", lambda: adapter.duplicates)
        watch("mqtt_readings", "Readings that messages held.", lambda: intake.readings)
        watch("mqtt_unmapped", "Messages that no mapping was for.", lambda: intake.unmapped.total)
        watch("mqtt_bad_values", "Values that could not be read.", lambda: intake.bad_values.total)
        faults = self._mapping_faults
        watch("mqtt_mapping_faults", "Mapping files and actuators that cannot be used.", lambda: len(faults()))


def _costs(figures: Figures) -> Costs:
    """The performance model as the metrics show it, in seconds."""
    phases = {
        "update": figures.update,
        "lutt": figures.lutt,
        "booster": figures.booster,
        "notify": figures.notify,
        "total": figures.total,
    }
    return Costs({name: (phase.count, phase.total / 1e9) for name, phase in phases.items()}, figures.hits)


async def _in_thread(stop: Callable[..., object], *arguments: object) -> None:
    await asyncio.to_thread(stop, *arguments)


async def _subscribed(adapter: MqttAdapter) -> None:
    """Wait until the embedded broker has somebody to hand readings to. Raises `StartError`."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while not adapter.subscribed:  # noqa: ASYNC110 - the adapter works on threads of its own
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise StartError(f"mqtt: the embedded broker did not answer within {_PATIENCE:g} s; start again") from None


async def _listening(start: Callable[[], Any], section: str, host: str, port: int, name: str = "port") -> int:
    """Start what listens. Raises `StartError` where the address cannot be had."""
    try:
        return int(await start() or 0)
    except OSError as error:
        key, variable = f"{section}.{name}", f"EDGE__{section}__{name}".upper()
        if error.errno == errno.EADDRINUSE:
            reason = f"{host}:{port} is in use by another program"
        elif error.errno == errno.EACCES:
            reason = f"{host}:{port} may not be used by this user"
        else:
            reason = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise StartError(f"{key}: {reason}; stop that, or set another port ({variable}=0: any free one)") from error


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _host(host: str) -> str:
    """A host as it stands in a URL for programs on this machine; its name is in our certificates."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - every address is this machine's, too
        return "localhost"
    return f"[{host}]" if ":" in host else host


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


def _as_reading(declared: Declared) -> Reading:
    """What a mapping declares, as the reading without a value that `Observations.declare` takes."""
    return Reading(
        declared.observation,
        "",
        XSD_STRING,
        unit=declared.unit,
        location=declared.location,
        property=declared.property,
        sensor=declared.sensor,
        label=declared.label,
        comment=declared.comment,
        topic=declared.topic,
    )
