"""The MQTT gate: gives each client that speaks at the broker a session, and says how the gateway is."""

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
from edge.gates.mqtt.query_files import read_queries
from edge.gates.mqtt.topics import Topics
from edge.gates.mqtt.unhandled_topics import UnhandledTopics
from edge.gates.rate_limit import RateLimit
from edge.gates.resume import ResumeRegistry
from edge.gates.session import Sessions
from edge.gates.settings import MqttGateSettings, SessionLimits
from edge.metrics import Metrics
from edge.protocol.errors import TooManyRequests
from edge.protocol.messages import MAX_ENCODED_ALIAS

_GATE = "mqtt"
_LOOK = 2.0
"""Seconds between two looks for changed queries."""
_LONGEST_NAME = 100
"""Characters; an answer must fit into a packet."""

_ROOM = 0.9
"""Of all sessions: with fewer it is told again when there are too many."""

_log = logging.getLogger(__name__)

_OFFLINE = b'{"status": "offline"}'


class MqttGate:
    """The gate for clients that speak only MQTT. All methods belong to one event loop.

    The broker stands between: when it is lost all clients are, and their sessions end. What is retained of us then says
    so, and when we are back a new `connection`, at which clients subscribe again.
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
    ) -> None:
        """`health` is what is told of the gateway: a JSON object. Without `resume_registry` nothing can be resumed.

        `strays`: who else hears what is said below the root, so that all of it is told once.
        """
        self._engine = engine
        self._settings = settings
        self._metrics = metrics
        self._make_link = make_link
        self._guard = guard
        self._rate_limit = rate_limit
        self._resume_registry = resume_registry
        self._health = health
        self._topics = Topics(settings.root)
        self._strays = strays or UnhandledTopics(settings.root)
        self._correlation = Correlation()
        self._open = metrics.connections.labels(_GATE)
        self._clients: dict[str, MqttClient] = {}
        self._full = False
        """Whether it was told that there is no room."""
        self._connection = ""
        self._status: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[None] | None = None
        self._unreadable: dict[Path, str] = {}

    @property
    def connected(self) -> bool:
        """Whether clients can be heard and answered."""
        return bool(self._connection)

    @property
    def alive(self) -> bool:
        """Whether the thread of its connection works."""
        return self._wire.alive

    def faults(self) -> dict[str, str]:
        """Standing queries that have no result, by file or name, and why."""
        return {**{str(file): reason for file, reason in self._unreadable.items()}, **self._standing.failures()}

    async def start(self) -> None:
        """Connect and stay connected. Returns at once; a broker that is away is tried again for ever."""
        settings = self._settings
        bridge = LoopDispatcher(asyncio.get_running_loop())
        self._sessions = Sessions(
            self._engine,
            bridge,
            self._metrics,
            guard=self._guard,
            gate=_GATE,
            section="mqtt_gate",
            another="ask under another NAME",
            max_alias=MAX_ENCODED_ALIAS,
            limits=SessionLimits.of(settings),
            rate_limit=self._rate_limit,
            resume_registry=self._resume_registry,
        )
        will = (self._topics.status, _OFFLINE)
        self._wire = BrokerConnection(bridge, self, self._topics.filters, will, self._make_link)
        self._standing = ContinuousQueries(
            self._engine,
            bridge,
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
        """End all sessions, say that we are gone, disconnect."""
        if self._reader is not None:
            self._reader.cancel()
        self._standing.close()
        self._end_sessions()
        told = asyncio.Event()
        if self._wire.publish(self._topics.status, _OFFLINE, retain=True, done=told.set):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.stop_timeout):
                    await told.wait()
        await asyncio.to_thread(self._wire.stop, self._settings.stop_timeout)

    # What the wire tells

    def up(self) -> None:
        """Clients are heard from now on."""
        self._connection = uuid.uuid4().hex[:12]
        self._tell_status()
        self._standing.up()

    def down(self) -> None:
        """The broker is lost, and all clients with it."""
        self._connection = ""
        self._end_sessions()

    def came(self, message: IncomingMessage) -> None:
        """A message."""
        read = self._topics.read(message.topic)
        if read is None:
            return
        kind, name = read
        if kind == "query":
            if message.retained and name not in self._standing:
                self._standing.clear(name)
            return
        client = self._clients.get(name)
        if kind == "status":
            # What a client retains is how it is; `online` is a beginning, everything else at most an end.
            if client is None and state_of(message.payload) == "online":
                client = self._admit(name)
            if client is not None:
                client.status(message.payload)
        elif not message.retained:  # what was asked before this connection began is not done again
            if client is None:
                client = self._admit(name)
            if client is not None:
                client.request(message)

    def _admit(self, name: str) -> MqttClient | None:
        """A session for a client that has none."""
        if not 0 < len(name) <= _LONGEST_NAME:
            self._strays.tell(self._topics.request(name), f"NAME has 1 to {_LONGEST_NAME} characters")
            return None
        limit = self._settings.max_clients
        if len(self._clients) >= limit and not self._make_room():
            error = TooManyRequests(f"All {limit} sessions are in use (mqtt_gate.max_clients); try again later")
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
        )
        self._open.inc()
        return client

    def _make_room(self) -> bool:
        """End the session that was silent the longest, if it was so for long: those that are left do not say so."""
        if not self._full:
            self._full = True
            _log.warning("mqtt_gate.full", extra={"sessions": len(self._clients), "setting": "mqtt_gate.max_clients"})
        client = max(self._clients.values(), key=lambda client: client.silent)
        if client.silent < self._settings.idle_timeout:
            return False
        client.give_way()
        return True

    def _forget(self, name: str) -> None:
        if self._clients.pop(name, None) is not None:
            self._open.dec()
            self._full = self._full and len(self._clients) >= _ROOM * self._settings.max_clients

    def _end_sessions(self) -> None:
        if self._status is not None:
            self._status.cancel()
        for client in list(self._clients.values()):
            client.close()

    async def _follow_queries(self, directory: Path) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            await self._read_queries(directory)

    async def _read_queries(self, directory: Path) -> None:
        found = await asyncio.to_thread(read_queries, directory)
        if found.faults != self._unreadable:
            for file, reason in found.faults.items():
                _log.error("mqtt_gate.query_unreadable", extra={"file": str(file), "reason": reason})
        self._unreadable = found.faults
        if directory not in found.faults:
            self._standing.follow(found.queries)

    def _tell_status(self) -> None:
        if self._status is not None:
            self._status.cancel()
        status = {"status": "online", "connection": self._connection, "health": self._health()}
        self._wire.publish(self._topics.status, json.dumps(status).encode(), retain=True)
        self._status = asyncio.get_running_loop().call_later(self._settings.status_interval, self._tell_status)
