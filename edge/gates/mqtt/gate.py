"""MQTT gate: gives each client at the broker a session, and publishes the gateway status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import OPEN_GUARD, Guard
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.mqtt.client import MqttClient, state_of
from edge.gates.mqtt.connection import BrokerConnection, ConnectionThread, IncomingMessage
from edge.gates.mqtt.continuous_queries import ContinuousQueries
from edge.gates.mqtt.correlation import Correlation
from edge.gates.mqtt.topics import Topics
from edge.gates.mqtt.unhandled_topics import UnhandledTopics
from edge.gates.rate_limit import RateLimit
from edge.gates.report_following import ReportSource
from edge.gates.resume import ResumeRegistry
from edge.gates.sessions import Sessions
from edge.gates.settings import QUERY_TIMEOUT, MqttGateSettings, SessionLimits
from edge.metrics import Metrics
from edge.protocol.errors import TooManyRequests
from edge.protocol.messages import MAX_ENCODED_ALIAS
from edge.query_files import read_queries

_GATE = "mqtt"
_POLL = 2.0
"""Seconds between two checks for changed query files."""
_LONGEST_NAME = 100
"""Maximum length of a client name in characters; a response must fit into a packet."""

_REARM = 0.9
"""Fraction of the maximum number of sessions below which the next overflow is logged again."""

_log = logging.getLogger(__name__)

_OFFLINE = b'{"status": "offline"}'


class MqttGate:
    """Gate for clients that support only MQTT. All methods belong to one event loop.

    When the connection to the broker is lost, all sessions end, because their clients are unreachable. The retained
    status then says offline. After a reconnection it has a new `connection` value, and clients subscribe again.
    """

    def __init__(
        self,
        engine: SessionEngine,
        settings: MqttGateSettings,
        metrics: Metrics,
        make_link: Callable[[BrokerConnection], ConnectionThread],
        health: Callable[[], Mapping[str, object]] = dict,
        *,
        guard: Guard = OPEN_GUARD,
        rate_limit: RateLimit | None = None,
        resume_registry: ResumeRegistry | None = None,
        strays: UnhandledTopics | None = None,
        query_timeout: float = QUERY_TIMEOUT,
        stop_timeout: float = 1.0,
        streams: Callable[[], ReportSource | None] = lambda: None,
        serves_clients: bool = True,
    ) -> None:
        """`health` returns the health report, a JSON object. Without `resume_registry`, subscriptions cannot be
        resumed.

        `strays`: shared with other users of the topics, so that each unhandled topic is logged once. `stop_timeout`:
        seconds for the broker to acknowledge the last messages when the gate stops. `streams`: returns the RDF streams;
        None without them. `serves_clients`: False to publish only the results of continuous queries, and no health
        report with the status.
        """
        self._engine = engine
        self._serves_clients = serves_clients
        self._settings = settings
        self._query_timeout = query_timeout
        self._stop_timeout = stop_timeout
        self._streams = streams
        self._metrics = metrics
        self._make_link = make_link
        self._guard = guard
        self._rate_limit = rate_limit
        self._resume_registry = resume_registry
        self._health = health
        self._topics = Topics(settings.root)
        self._unhandled = strays or UnhandledTopics(settings.root)
        self._correlation = Correlation()
        self._open = metrics.connections.labels(_GATE)
        self._clients: dict[str, MqttClient] = {}
        self._full_logged = False
        """Whether the overflow was logged."""
        self._connection = ""
        self._status: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[None] | None = None
        self._unreadable: dict[Path, str] = {}

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return bool(self._connection)

    @property
    def alive(self) -> bool:
        """Whether the connection's thread runs."""
        return self._wire.alive

    def faults(self) -> dict[str, str]:
        """Return the continuous queries without a result, by file or name, with the reason."""
        return {**{str(file): reason for file, reason in self._unreadable.items()}, **self._continuous.failures()}

    async def start(self) -> None:
        """Connect and stay connected. Returns at once; retries forever if the broker is unreachable."""
        settings = self._settings
        dispatcher = LoopDispatcher(asyncio.get_running_loop())
        self._sessions = Sessions(
            self._engine,
            dispatcher,
            self._metrics,
            guard=self._guard,
            gate=_GATE,
            section="mqtt_gate",
            another="ask under another NAME",
            max_alias=MAX_ENCODED_ALIAS,
            limits=SessionLimits.of(settings, self._query_timeout),
            rate_limit=self._rate_limit,
            resume_registry=self._resume_registry,
        )
        will = (self._topics.status, _OFFLINE)
        filters = self._topics.filters if self._serves_clients else (self._topics.result("+"),)
        self._wire = BrokerConnection(dispatcher, self, filters, will, self._make_link)
        self._continuous = ContinuousQueries(
            self._engine,
            dispatcher,
            self._wire,
            self._topics,
            interval=settings.query_interval,
            max_payload=settings.max_result,
        )
        if settings.queries_dir is not None:
            await self._read_queries(settings.queries_dir)
            self._reader = asyncio.create_task(self._follow_queries(settings.queries_dir))
        self._wire.start()

    async def stop(self) -> None:
        """End all sessions, publish the offline status, disconnect."""
        if self._reader is not None:
            self._reader.cancel()
        self._continuous.close()
        self._end_sessions()
        published = asyncio.Event()
        # A normal DISCONNECT discards the will (MQTT 3.1.1, section 3.14.4), so its message is sent here.
        if self._wire.publish(self._topics.status, _OFFLINE, retain=True, done=published.set):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._stop_timeout):
                    await published.wait()
        await asyncio.to_thread(self._wire.stop, self._stop_timeout)

    # Events of the connection

    def up(self) -> None:
        """Start to serve clients."""
        self._connection = uuid.uuid4().hex[:12]
        self._publish_status()
        self._continuous.up()

    def down(self) -> None:
        """End all sessions: the broker is lost."""
        self._connection = ""
        self._end_sessions()

    def received(self, message: IncomingMessage) -> None:
        """Process a message."""
        read = self._topics.read(message.topic)
        if read is None:
            return
        kind, name = read
        if kind == "query":
            # The file of this query was removed while the gateway was not running.
            if message.retained and name not in self._continuous:
                self._continuous.clear(name)
            return
        client = self._clients.get(name)
        if kind == "status":
            # A retained status is the current state; `online` starts a session, everything else can only end one.
            if client is None and state_of(message.payload) == "online":
                client = self._admit(name)
            if client is not None:
                client.status(message.payload)
        elif not message.retained:  # a retained request is older than this connection, and is not repeated
            if client is None:
                client = self._admit(name)
            if client is not None:
                client.request(message)

    def _admit(self, name: str) -> MqttClient | None:
        """Start a session for a new client; None: refused."""
        if not 0 < len(name) <= _LONGEST_NAME:
            self._unhandled.report(self._topics.request(name), f"NAME has 1 to {_LONGEST_NAME} characters")
            return None
        limit = self._settings.max_connections
        if len(self._clients) >= limit and not self._evict_idle():
            error = TooManyRequests(f"All {limit} sessions are in use (mqtt_gate.max_connections); try again later")
            self._wire.publish(self._topics.response(name), error.to_json().encode())
            self._metrics.answered(_GATE, "message", error.status_code, 0.0)
            return None
        client = self._clients[name] = MqttClient(
            name,
            self._sessions,
            self._wire,
            self._topics,
            self._correlation,
            idle_timeout=self._settings.idle_timeout,
            ended=self._forget,
            streams=self._streams,
        )
        self._open.inc()
        return client

    def _evict_idle(self) -> bool:
        """End the longest idle session if it exceeds the idle timeout: clients may leave without notice."""
        if not self._full_logged:
            self._full_logged = True
            _log.warning(
                "mqtt_gate.full", extra={"sessions": len(self._clients), "setting": "mqtt_gate.max_connections"}
            )
        client = max(self._clients.values(), key=lambda client: client.silent)
        if client.silent < self._settings.idle_timeout:
            return False
        client.give_way()
        return True

    def _forget(self, name: str) -> None:
        if self._clients.pop(name, None) is not None:
            self._open.dec()
            self._full_logged = self._full_logged and len(self._clients) >= _REARM * self._settings.max_connections

    def _end_sessions(self) -> None:
        if self._status is not None:
            self._status.cancel()
        for client in list(self._clients.values()):
            client.close()

    async def _follow_queries(self, directory: Path) -> None:
        while True:
            await asyncio.sleep(_POLL)
            await self._read_queries(directory)

    async def _read_queries(self, directory: Path) -> None:
        found = await asyncio.to_thread(read_queries, directory)
        if found.faults != self._unreadable:
            for file, reason in found.faults.items():
                _log.error("mqtt_gate.query_unreadable", extra={"file": str(file), "reason": reason})
        self._unreadable = found.faults
        # A directory that is unreadable for a moment must not end its queries.
        if directory not in found.faults:
            self._continuous.follow(found.queries)

    def _publish_status(self) -> None:
        if self._status is not None:
            self._status.cancel()
        status: dict[str, object] = {"status": "online", "connection": self._connection}
        if self._serves_clients:
            status["health"] = self._health()
        self._wire.publish(self._topics.status, json.dumps(status).encode(), retain=True)
        self._status = asyncio.get_running_loop().call_later(self._settings.status_interval, self._publish_status)
