"""The gateway: starts all components in order, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final

from edge import __version__, endpoints
from edge.adapters.observations import Observations
from edge.config import Settings
from edge.data_directory import default_data_dir
from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.journal import disk_reserve
from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.journal import Journal
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.engine.requests import QueryRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.http import Views
from edge.gates.rate_limit import RateLimit
from edge.gates.resume import ResumeRegistry
from edge.gateway.client_services import ClientServices
from edge.gateway.engine_health import EngineHealth
from edge.gateway.engine_metrics import watch_engine
from edge.gateway.errors import StartError, StopError
from edge.gateway.gates import Gates
from edge.gateway.health import for_unauthenticated, short_faults, without_texts
from edge.gateway.maintenance import Launch, Maintenance
from edge.gateway.outbox import Shipping
from edge.gateway.query_documents import QueryDocuments
from edge.gateway.session_engine import StreamingEngine, StreamsInUse
from edge.gateway.system_updates import SystemUpdates
from edge.gateway.watchdog import Component, Watchdog
from edge.host_state import clock_synchronized, disk_space
from edge.last_run import LastRun
from edge.load_documents import load_document
from edge.metrics import Metrics
from edge.outbox.outbox import Outbox
from edge.outbox.recorder import Recorder
from edge.outbox.sampling import Sampler
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, NotReady, ReadOnly, RequestTimeout, UpdateFailed
from edge.streams.callback_hosts import CallbackHosts
from edge.streams.settings import FILE_NAME as STREAMS

if TYPE_CHECKING:
    from edge.gates.http.profiles import ProfileRequest
    from edge.gateway.automation import RunningRules
    from edge.gateway.client_management import ClientManagement
    from edge.gateway.host import Host
    from edge.gateway.mappings import Mappings
    from edge.gateway.modbus import Modbus
    from edge.gateway.mqtt import Mqtt
    from edge.gateway.recent import Recent
    from edge.gateway.serial import Serial
    from edge.gateway.streams import RunningStreams
    from edge.security.enrolment import Enrolment
    from edge.security.security import Security
    from edge.security.tls import Tls

_log = logging.getLogger(__name__)


_PATIENCE: Final = 0.5
"""Seconds beyond `shutdown.timeout` to wait for the engine: the timeout of the process comes first, and logs it."""


class Gateway:
    """One gateway. `async with Gateway(settings) as gateway:` runs it in the current event loop.

    Several gateways can run in one process if each has its own data directory and ports (0).
    """

    def __init__(
        self,
        settings: Settings,
        launch: Launch | None = None,
        *,
        on_progress: Callable[[str], None] = lambda _: None,
        longest_silence: float = float("inf"),
    ) -> None:
        """`on_progress` is called at least every `longest_silence` seconds while no restart of the process is needed.
        Its argument names the components without progress.
        """
        self.settings = settings
        self._maintenance = Maintenance(settings, launch or Launch(), lambda: self.restart.set())
        self._system_updates = SystemUpdates(settings.appliance.update_directory)
        self._on_progress = on_progress
        self._longest_silence = longest_silence
        self.endpoints: dict[str, str] = {}
        """Service ("http", "ws", "https", "wss", "mqtt", "coap") to URL while it runs; the content of endpoints.json.
        """
        self.metrics = Metrics()
        self.restart = asyncio.Event()
        """Set when the gateway has to start again, because a backup was staged."""
        self._quota = ByteQuota(settings.limits.max_client_bytes, settings.limits.max_total_bytes)
        self.last_run: LastRun | None = None
        """Record of how the previous run ended, and of this run's end. None: the data directory is not open."""
        self._engine: Scheduler | None = None
        self._engine_health: EngineHealth | None = None
        self._outbox: Outbox | None = None
        self._shipping: Shipping | None = None
        self._recent: Recent | None = None
        self._mappings: Mappings | None = None
        self._queries: QueryDocuments | None = None
        self._rules: RunningRules | None = None
        self._mqtt: Mqtt | None = None
        self._serial: Serial | None = None
        self._modbus: Modbus | None = None
        self._streams = StreamsInUse(None)
        self._host: Host | None = None
        self._security: Security | None = None
        self._enrolment: Enrolment | None = None
        self._clients: ClientManagement | None = None
        self._watchdog: Watchdog | None = None
        self._began = time.monotonic()
        self._stopping_since: float | None = None
        self._stack = AsyncExitStack()
        self._ready = False

    @property
    def read_only(self) -> str:
        """Why the gateway is in rescue mode, and the remedy; empty if it is not."""
        return "" if self._engine is None else self._engine.read_only

    @property
    def is_default_data_dir(self) -> bool:
        """Whether other commands find this gateway without an explicit data directory."""
        return self.settings.data_dir.absolute() == default_data_dir().absolute()

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all components; returns when clients are served and the endpoints file is written.

        Raises `StartError`; then nothing runs, and no stored data has changed.
        """
        self._began = time.monotonic()
        try:
            await self._start()
            self._ready = True  # set first: a client that reads the endpoints file may connect at once
            await asyncio.to_thread(self._write_endpoints)
        except BaseException as error:
            # A cancelled start was interrupted, and has not failed.
            if isinstance(error, Exception):
                await self._end_run("start_failed", str(error))
            # `stop` closes the components that have started, in reverse order.
            await self.stop()
            raise
        assert self.last_run is not None, "created with the engine"  # noqa: S101
        restart, seconds = self.last_run.restart, round(time.monotonic() - self._began, 2)
        details = {"version": __version__, "seconds": seconds, "last_restart": restart.text, "starts": restart.starts}
        _log.info("gateway.ready", extra={**self.endpoints, **details})

    async def stop(self) -> None:
        """Stop accepting requests, finish pending work, notify clients and store everything. Idempotent."""
        self._ready = False
        self._stopping_since = time.monotonic()
        await self._stack.aclose()

    async def lost(self) -> str:
        """Wait until the gateway has to be restarted. Returns the reason."""
        assert self._watchdog is not None, "a gateway that has started"  # noqa: S101
        # Shielded: a cancelled waiter must not cancel the future that others await.
        reason = await asyncio.shield(self._watchdog.lost)
        await self._end_run("lost", reason)
        return reason

    def last_words(self, reason: str, detail: str = "") -> None:
        """Record why the process is about to be killed, one of `edge.last_run.REASONS`. Thread-safe."""
        if self.last_run is not None:
            self.last_run.last_words(reason, detail)

    async def _end_run(self, reason: str, detail: str = "") -> None:
        await asyncio.to_thread(self.last_words, reason, detail)

    async def _start(self) -> None:
        settings = self.settings
        watched = settings.watchdog
        interval = min(watched.interval, self._longest_silence)
        watchdog = Watchdog(interval, watched.stall_after, watched.end_after, self.metrics, self._on_progress)
        self._stack.enter_context(disk_reserve.used(settings.data_dir))
        tls = await self._start_security()  # first: the engine asks it for the permissions of delayed updates
        if settings.recent.enabled:
            from edge.gateway.recent import Recent

            self._recent = Recent(settings, self.metrics)
            self._stack.push_async_callback(self._recent.stop)
        engine = await self._start_engine()
        if self._recent is not None:
            await self._recent.start(engine)
        security = self._security
        guard = OPEN_GUARD if security is None else security.guard
        rate_limit = RateLimit(settings.limits, self._quota)
        if settings.streams.enabled and not engine.read_only:
            self._streams = StreamsInUse(partial(self._make_streams, engine))
            self._stack.push_async_callback(self._streams.stop)
        sessions = StreamingEngine(engine, self._streams)
        resume_registry = await self._start_resume(sessions, guard)
        services = ClientServices(sessions, guard, rate_limit, resume_registry, tls)
        gates = Gates(
            settings,
            engine,
            services,
            self.metrics,
            self._views(),
            self._take_reading,
            authority=None if security is None else security.authority,
            contexts=None if security is None else security.contexts,
        )
        await gates.start(self._stack)
        self.endpoints.update(gates.endpoints)
        assert self._engine_health is not None, "created with the engine"  # noqa: S101
        watchdog.watch(*self._engine_health.parts, *gates.parts)
        if not engine.read_only:  # In rescue mode nothing is acknowledged, so the data stays with its sender.
            await self._start_inputs(engine, services, watchdog)
        self._watchdog = watchdog
        if self._streams.opened is not None:
            watchdog.watch(self._streams.opened.part)
        self._stack.push_async_callback(_cancelled, asyncio.create_task(watchdog.run()))
        # runs before the gates stop: connections that they close stay resumable after a restart
        self._stack.callback(resume_registry.close)

    async def _start_inputs(self, engine: Scheduler, services: ClientServices, watchdog: Watchdog) -> None:
        """Start the adapters, and the shipment of observations to the history."""
        settings = self.settings
        assert self._outbox is not None, "opened with the engine"  # noqa: S101
        self._shipping = await asyncio.to_thread(Shipping, settings, self._outbox, self.metrics)
        self._shipping.start(self._stack)
        observations = Observations(engine, settings.observations, history=Sampler())
        await asyncio.to_thread(observations.start)
        self._stack.callback(observations.close)
        self._queries = QueryDocuments(
            settings.queries_dir,
            settings.data_dir,
            f"{settings.mqtt_gate.root}/query/" if settings.runs_mqtt_gate else "",
            partial(_check_query, engine, settings.engine.query_timeout),
            lambda: self._mqtt.gate.faults() if self._mqtt is not None and self._mqtt.gate is not None else {},
        )
        from edge.gateway.automation import RunningRules

        self._rules = RunningRules(settings, engine, self._recent, self.metrics)
        watchdog.watch(self._rules.start(self._stack))
        # Before the adapters: the readings that wait in brokers are elements, too. With a busy live graph, adapters
        # start before all queries have begun.
        if (settings.data_dir / STREAMS).exists() and (streams := self._streams.open()) is not None:
            await streams.restore()
        # Each component is imported where it starts: without it, the gateway saves the memory and start-up time.
        if settings.mqtt.enabled or settings.coap.enabled or settings.serial.enabled or settings.modbus.enabled:
            from edge.gateway.mappings import Mappings

            self._mappings = await asyncio.to_thread(Mappings, settings, engine, observations)
            await self._start_mapped(self._mappings, engine, services, watchdog)
        if settings.host.enabled:
            from edge.gateway.host import Host

            self._host = Host(settings, observations, self.metrics)
            self._host.start(self._stack)
            watchdog.watch(self._host.part)
        await asyncio.to_thread(self._settle, engine)

    async def _start_mapped(
        self, mappings: Mappings, engine: Scheduler, services: ClientServices, watchdog: Watchdog
    ) -> None:
        """Start the inputs whose payloads the mappings turn into readings, and actuation."""
        settings = self.settings
        if settings.serial.enabled:
            from edge.gateway.serial import Serial

            self._serial = Serial(settings, engine, mappings, self.metrics)
            await self._serial.start(self._stack)
            watchdog.watch(self._serial.part)
        if settings.modbus.enabled:
            from edge.gateway.modbus import Modbus

            self._modbus = Modbus(settings, engine, mappings, self.metrics)
            await self._modbus.start(self._stack)
            watchdog.watch(self._modbus.part)
        mappings.start(self._stack)
        watchdog.watch(Component("mappings", mappings.prove, ends=True))
        if settings.mqtt.enabled:
            from edge.gateway.mqtt import Mqtt

            self._mqtt = Mqtt(
                settings,
                engine,
                services,
                mappings,
                self.metrics,
                health=self._health_of_clients,
                streams=self._streams.open,
                rights=self._rights_of,
            )
            await self._mqtt.start(self._stack)
            self.endpoints.update(self._mqtt.endpoints)
            watchdog.watch(*self._mqtt.parts)
        elif settings.serial.enabled or settings.modbus.enabled:
            timeout = settings.shutdown.timeout * 0.2
            watchdog.watch(mappings.start_actuation(self._stack, None, self.metrics, timeout))
        if self._modbus is not None:
            self._stack.push_async_callback(asyncio.to_thread, self._modbus.disconnect)

    def _rights_of(self, identity: str) -> Access | None:
        """Return the rights of a client, also of one that has not registered yet; None: it does not exist.

        Without security, each has all rights.
        """
        if self._security is None:
            return ANYBODY
        found = (each for each in self._security.clients.all() if each.identity == identity)
        return next((each.access(None) for each in found if each.state not in ("revoked", "damaged")), None)

    def _make_streams(self, engine: Scheduler) -> RunningStreams:
        from edge.gateway.streams import RunningStreams

        security = self._security
        rights = _as_given if security is None else partial(security.guard.rights, action="query")
        streams = RunningStreams(self.settings, engine, self.metrics, rights, lambda: self.endpoints, self._recent)
        if self._watchdog is not None:
            self._watchdog.watch(streams.part)
        return streams

    def _settle(self, engine: Scheduler) -> None:
        """Wait until the gateway's own subscriptions have begun: then it does for a client what it will always do."""
        if self._rules is not None:
            self._rules.settle()
        if self._mappings is not None:
            self._mappings.actuation.settle()
        with suppress(TimeoutError):
            engine.on_writer(lambda: None).result(_PATIENCE)

    async def _start_resume(self, engine: SessionEngine, guard: Guard) -> ResumeRegistry:
        limits = self.settings.subscriptions
        count = self.metrics.suspended_subscriptions
        resume_registry = ResumeRegistry(
            engine,
            guard,
            count,
            seconds=limits.resume_for,
            limit=limits.max_parked,
            max_sent=limits.max_sent,
            quota=self._quota,
        )
        await resume_registry.restore()
        return resume_registry

    def _write_endpoints(self) -> None:
        """Write the file that tells other commands the URLs. A full disk must not prevent the start, so errors are
        logged only.
        """
        try:
            endpoints.write(self.settings.data_dir, self.endpoints)
        except OSError as error:
            _log.error("endpoints.not_written", extra={"reason": str(error)})
        else:
            self._stack.push_async_callback(self._remove_endpoints)

    async def _remove_endpoints(self) -> None:
        """Remove the endpoints file. A disk that does not respond must not delay the shutdown."""
        removing = asyncio.create_task(asyncio.to_thread(endpoints.remove, self.settings.data_dir))
        await asyncio.wait([removing], timeout=self.settings.shutdown.timeout * 0.1)

    async def _start_engine(self) -> Scheduler:
        settings, limits = self.settings, self.settings.subscriptions
        # The journal is opened inside `open_engine`, so the recorder is made there.
        recorders: list[Recorder] = []

        def ledger(journal: Journal) -> Recorder:
            recorders.append(Recorder(journal, settings.outbox))
            return recorders[0]

        # One list for all hosts to which clients can make the gateway send requests.
        hosts = CallbackHosts(settings.streams.callback_hosts, security=settings.security.enabled)
        try:
            engine = await asyncio.to_thread(
                open_engine,
                settings.data_dir,
                settings.engine,
                load=partial(load_document, permits=hosts.permits),
                rights=_as_given if self._security is None else self._security.guard.rights,
                ledger=ledger,
                rescue=True,
                quota=self._quota,
                max_durable=limits.max_parked if limits.resume_for else 0,
            )
        except DataDirectoryRefused as error:
            raise StartError(error.description) from error
        except UpdateFailed as error:
            raise StartError(f"outbox.graph: {error.description}, with another outbox.graph meanwhile") from error
        self._stack.push_async_callback(self._close_engine, engine)
        self.last_run = await asyncio.to_thread(LastRun.begin, settings.data_dir, __version__)
        self.metrics.set_restart(self.last_run.restart.reason, self.last_run.restart.starts)
        # Runs before `_close_engine`, while this process still holds the lock of the directory.
        self._stack.push_async_callback(self._end_run, "stopped")
        self._engine = engine
        self._engine_health = EngineHealth(engine, settings.engine.stall_after, lambda: self._ready)
        if not engine.read_only:
            await asyncio.to_thread(_make_directories, settings)
            self._outbox = Outbox(recorders[0], settings.data_dir / FILE_NAME, engine.on_writer)
            self._stack.callback(self._outbox.close)
        watch_engine(engine, self.metrics)
        return engine

    async def _close_engine(self, engine: Scheduler) -> None:
        timeout = self.settings.shutdown.timeout
        spent = 0.0 if self._stopping_since is None else time.monotonic() - self._stopping_since
        # The gates have used a part of the time, so the engine has to refuse the waiting requests earlier.
        if not await asyncio.to_thread(engine.close, max(timeout - spent, 0.0) + _PATIENCE):
            await self._end_run("stop_timeout", "the engine did not finish its pending work")
            raise StopError("The engine did not finish its pending work in time; acknowledged updates are stored")

    async def _start_security(self) -> Tls | None:
        settings = self.settings.security
        if not settings.enabled:
            return None
        # Imported here: without security, the gateway saves the memory and start-up time.
        from edge.gateway.client_management import ClientManagement
        from edge.security.certificates import Files
        from edge.security.enrolment import Enrolment
        from edge.security.security import Security
        from edge.security.tls import Tls

        try:
            other = self.settings.issuer
            issuers = (other,) if other.url else ()
            security = await asyncio.to_thread(Security, self.settings.data_dir, settings, issuers)
            self._stack.callback(security.close)
            tls = await asyncio.to_thread(Tls, self.settings.tls_dir, settings.cert_file, settings.key_file)
        except EdgeError as error:
            raise StartError(f"security: {error.description}") from error
        for watch in (security.guard.run(), tls.run(), *(issuer.keys.run() for issuer in security.issuers.values())):
            self._stack.push_async_callback(_cancelled, asyncio.create_task(watch))
        self._security = security
        files = Files(self.settings.tls_dir)
        authority = files.authority if settings.cert_file is None else None
        certificate = settings.cert_file or files.server
        self._clients = ClientManagement(security, certificate, authority, self.settings.mqtt_gate.root)
        self._enrolment = Enrolment(security.clients, settings.enrolment_file, settings.enrolment_shown)
        return tls

    async def _take_reading(self, topic: str, payload: bytes) -> int:
        if self._engine is not None and self._engine.read_only:
            raise ReadOnly(self._engine.read_only)
        if self._mappings is None:
            raise NotReady("No readings are taken yet: the gateway is starting; try again")
        return await self._mappings.take(topic, payload)

    def _views(self) -> Views:
        return Views(
            ready=lambda: self._ready and self._engine is not None and self._engine.ready,
            fault=self._fault,
            health=self._health,
            open_health=lambda: for_unauthenticated(self._health()),
            enrolment=None if self._enrolment is None else self._enrolment.to_message,
            endpoints=lambda: self.endpoints,
            unmapped=lambda: self._mappings.ingest.unmapped.listed() if self._mappings is not None else [],
            unmapped_topic=lambda topic: (
                self._mappings.ingest.unmapped.sample(topic) if self._mappings is not None else None
            ),
            clients=lambda: self._clients,
            maintenance=self._maintenance,
            system_updates=self._system_updates,
            profiles=_read_profile,
            queries=lambda: self._queries,
            mappings=lambda: self._mappings.documents if self._mappings is not None else None,
            settable=lambda iris: self._mappings.settable(iris) if self._mappings is not None else {},
            rules=lambda: self._rules.documents if self._rules is not None else None,
            bad_values=lambda: self._mappings.ingest.bad_values.listed() if self._mappings is not None else [],
            outbox=lambda: self._shipping.status.to_message() if self._shipping is not None else {},
            streams=self._streams.open,
            features=_features(self.settings.engine),
            ship=self._ship,
            recent=self._recent,
        )

    async def _ship(self) -> Mapping[str, object]:
        if self._shipping is None:
            raise NotReady("Nothing is shipped yet: the gateway is starting; try again")
        return await self._shipping.ship()

    def _fault(self) -> str:
        """Return the problems of a gateway that accepts requests; empty without problems."""
        still = self._watchdog.still(time.monotonic()) if self._watchdog is not None else []
        clients = self._security.fault if self._security is not None else ""
        engine = "" if (health := self._engine_health) is None else health.engine_fault() or health.journal_fault()
        return engine or clients or "; ".join(still)

    def _health(self) -> Mapping[str, object]:
        engine, mappings, mqtt = self._engine, self._mappings, self._mqtt
        health: dict[str, object] = {
            "version": __version__,
            "uptime_seconds": round(time.monotonic() - self._began),
            "pending_updates": engine.pending_updates if engine is not None else 0,
            "pending_timers": engine.pending_timers if engine is not None else 0,
        }
        with suppress(OSError):
            health["disk"] = dict(zip(("free", "total"), disk_space(self.settings.data_dir), strict=True))
        if (synchronized := clock_synchronized()) is not None:
            health["clock"] = "synchronized" if synchronized else "not synchronized"
        if self.last_run is not None:
            health["last_restart"] = self.last_run.restart.to_message()
        if self._watchdog is not None:
            health["parts"] = self._watchdog.states()
        if self._engine_health is not None and (busy := self._engine_health.busy()):
            health |= {"status": "degraded", "engine": busy}
        if engine is not None and engine.storage_failing:
            health["storage"] = engine.storage_failing
        if self._shipping is not None:
            health["outbox"] = self._shipping.status.to_message()
        if self._recent is not None:
            health["recent"] = self._recent.to_message()
        if mqtt is not None:
            health["mqtt"] = mqtt.state
            health["mqtt_broker"] = "external" if mqtt.broker is None else "embedded"
            if fault := mqtt.announcing.fault:
                health["announce_fault"] = fault
            if mqtt.sparkplug is not None:
                health["sparkplug"] = mqtt.sparkplug.health()
                health["sparkplug_host"] = mqtt.sparkplug.host_health()
        if self._serial is not None and (ports := self._serial.health()):
            health["serial"] = ports
        if self._modbus is not None and (devices := self._modbus.health()):
            health["modbus"] = devices
            if missing := self._modbus.missing():
                health["modbus_missing"] = missing
        if mappings is not None:
            health["mapping_faults"] = short_faults(mappings.faults())
        if self._rules is not None:
            health["rule_faults"] = self._rules.faults()
        if mqtt is not None and mqtt.gate is not None:
            health["mqtt_gate"] = _connection(mqtt.gate.connected)
            health["query_faults"] = mqtt.gate.faults()
        return health

    def _health_of_clients(self) -> Mapping[str, object]:
        return self._health() if self._security is None else without_texts(self._health())


def _features(engine: EngineSettings) -> Sequence[str]:
    """Return the features of the SPARQL endpoint, by their names in the vocabulary of service descriptions."""
    features = {
        "EmptyGraphs": True,  # of CREATE GRAPH
        "UnionDefaultGraph": engine.default_graph_as_union,
        "DereferencesURIs": engine.allow_load,
        "BasicFederatedQuery": engine.allow_service,
    }
    return [name for name, is_on in features.items() if is_on]


def _read_profile(wanted: ProfileRequest) -> Mapping[str, object]:
    from edge.gateway.profile_forms import read_profile  # not every gateway is ever asked

    return read_profile(wanted)


def _check_query(engine: Scheduler, seconds: float, text: str) -> None:
    """Raise `EdgeError` for a text to which one cannot subscribe."""
    try:
        engine.explain(QueryRequest(text)).result(seconds)
    except TimeoutError:
        raise RequestTimeout(f"The check of the query took longer than {seconds:g} s; try again later") from None


def _as_given(rights: Access) -> Access:
    """Return the permissions unchanged: without security, a delayed update keeps those of its request."""
    return rights


def _connection(up: bool) -> str:
    return "connected" if up else "disconnected"


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _make_directories(settings: Settings) -> None:
    """Create the directories of the operator's files in the data directory, so that they are found."""
    for path in (settings.mappings_dir, settings.queries_dir, settings.rules_dir):
        if path.parent == settings.data_dir:
            with suppress(OSError):  # the gateway also works without them
                path.mkdir(exist_ok=True)
