"""Clients in a simulated world that subscribe and update over slow and unreliable connections.

They use the gateway's real sessions, on an event loop whose steps the simulation controls. A client that lost its
connection reconnects, resumes its subscriptions, and repeats unanswered updates. Guarantees:

- The notifications of a subscriber add up to the result of its query, whichever were merged, lost and resumed.

- An answered update is present after any restart.

- Every request is answered while its connection lives.

- When all clients are gone, the gateway holds nothing for them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from simulated_devices import Devices

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.requests import Sink, SubscribeFailed, SubscriberNotification
from edge.engine.resume.recovery import RestoredSubscription
from edge.engine.scheduling.scheduler import Scheduler
from edge.gates.guard import OPEN_GUARD
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit
from edge.gates.resume import ResumeRegistry
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.gates.settings import LimitSettings, SessionLimits, WsGateSettings
from edge.metrics import Metrics
from tests.support.settings import unchecked

QUERIES = (
    " SELECT ?c ?n { ?c <urn:value> ?n }",
    " SELECT (COUNT(?n) AS ?k) (MAX(?n) AS ?m) { ?c <urn:done> ?n }",
    " SELECT ?c ?n { ?c <urn:done> ?n }",
    " ASK { ?c <urn:done> 3 }",
)
"""Subscription texts. They start with a space, which identifies the subscriptions of these clients."""
_RESUME_FOR = 600.0
"""Seconds."""

Row = str
Bag = Counter[Row]


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop that runs one iteration at a time on a simulated clock."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self

    def time(self) -> float:
        return self._clock.up / 1_000_000

    def turn(self) -> bool:
        """Run what is due now. Return False if nothing was."""
        busy = bool(self._ready) or bool(self._scheduled and self._scheduled[0].when() <= self.time())
        self._run_once()
        return busy

    def select(self, _: float | None) -> list[Any]:
        return []

    def _process_events(self, _: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Socket:
    """A WebSocket with the gateway's end, a `ClientConnection` of `edge.gates.outgoing`.

    A cut loses messages in flight.
    """

    def __init__(self, room: int) -> None:
        """`room`: messages in flight to the client before it counts as not reading."""
        self._room = room
        self._changed = asyncio.Event()
        self.to_gateway: deque[str] = deque()
        self.to_client: deque[str] = deque()
        self.received: deque[str] = deque()
        self.cut = False
        self.lost = False
        """Whether the gateway knows that it is lost."""
        self.closing = False
        """Whether one end has started to close it."""
        self.served = True

    @property
    def writable(self) -> bool:
        return len(self.to_client) < self._room

    def write(self, text: str) -> None:
        if not (self.cut or self.closing):
            self.to_client.append(text)

    @property
    def unsent(self) -> int:
        return 0 if self.writable else sum(map(len, self.to_client))

    async def write_and_wait(self, text: str) -> bool:
        if self.lost or self.closing:
            return False
        self.write(text)
        return await self.taken()

    async def taken(self) -> bool:
        while not self.writable:
            await self._change()
            if self.lost or self.closing:
                return False
        return True

    def close(self, code: int, reason: str) -> None:
        self.closing = True
        self.changed()

    def abort(self) -> None:
        self.to_client.clear()
        self.close(1006, "")

    def changed(self) -> None:
        """Wake up the readers and writers."""
        self._changed.set()

    async def read(self) -> str | None:
        """Return the next message of the client, or None after the last."""
        while not self.received:
            if self.lost or self.closing:
                return None
            await self._change()
        return self.received.popleft()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@dataclass
class Subscribed:
    """A subscription from its client's view."""

    query: str
    alias: str
    resumable: bool
    spuid: str = ""
    sequence: int = -1
    bag: Bag = field(default_factory=Counter)
    asked: bool = False
    """Whether it was requested over the current connection."""
    reported: bool = False
    """Whether this request was answered."""


class Client:
    """A client with one connection and one update at a time."""

    def __init__(self, name: str) -> None:
        self.subject = f"urn:connected:{name}"
        self.socket: Socket | None = None
        self.subscriptions: dict[str, Subscribed] = {}
        self.named = 0
        self.number = 0
        """Number of the unanswered update, or of the last one."""
        self.answered = 0
        """Number of the last answered update."""
        self.asked = False
        """Whether it is in flight over the current connection."""

    def lose(self) -> None:
        """Notice that its connection is lost."""
        self.socket = None
        self.asked = False
        for subscribed in self.subscriptions.values():
            subscribed.asked = subscribed.reported = False

    def speak(self) -> None:
        """Send all requests that have not been sent yet."""
        socket = self.socket
        assert socket is not None
        if self.number > self.answered and not self.asked:
            self.asked = True
            text = f"INSERT DATA {{ <{self.subject}> <urn:done> {self.number} }}"
            socket.to_gateway.append(json.dumps({"update": {"sparql": text, "alias": "update"}}))
        for subscribed in self.subscriptions.values():
            if not subscribed.asked:
                subscribed.asked = True
                body: dict[str, Any] = {"sparql": subscribed.query, "alias": subscribed.alias}
                if subscribed.resumable:
                    body["resume"] = True
                    if subscribed.spuid:
                        body |= {"spuid": subscribed.spuid, "sequence": subscribed.sequence}
                socket.to_gateway.append(json.dumps({"subscribe": body}))

    def hear(self, text: str) -> None:
        """Process a message of the gateway."""
        message = json.loads(text)
        if "updated" in message:
            self.answered = self.number
            self.asked = False
        elif "notification" in message:
            self._learn(message["notification"])
        elif "unsubscribed" not in message:
            self._refused(message)

    def _refused(self, message: dict[str, Any]) -> None:
        assert message["error"] in ("storage_failed", "subscription_failed"), message
        if message["alias"] == "update":
            self.asked = False
        elif message["alias"] in self.subscriptions:
            subscribed = self.subscriptions[message["alias"]]
            subscribed.asked = subscribed.reported = False
            subscribed.spuid = ""

    def _learn(self, reported: dict[str, Any]) -> None:
        subscribed = self.subscriptions.get(reported["alias"])
        if subscribed is None:
            return  # its last one, before its end was answered
        added, removed = rows(reported["addedResults"]), rows(reported["removedResults"])
        sequence, before = reported["sequence"], reported["sequence"] - reported.get("merged", 1)
        if reported["spuid"] != subscribed.spuid:
            assert sequence == 0, "another subscription does not begin with its whole result"
            subscribed.bag = Counter()
        else:
            assert before == subscribed.sequence, "a notification is missing or came twice"
        subscribed.spuid, subscribed.sequence, subscribed.reported = reported["spuid"], sequence, True
        assert removed <= subscribed.bag, "rows are removed that were not there"
        subscribed.bag = subscribed.bag - removed + added


class Clients:
    """The clients, which continue over restarts of gateways, and the gateway's sessions."""

    def __init__(self, chance: random.Random, clock: Any, story: list[str]) -> None:
        """`story` receives a text for each event."""
        self._chance = chance
        self._clock = clock
        self._story = story
        self._clients = [Client(name) for name in "xyz"]
        self._limits = SessionLimits.of(
            unchecked(
                WsGateSettings,
                max_unmerged=chance.choice((0, 200, 1_000_000)),
                merge_after=chance.choice((-1.0, 1e9)),
                max_pending_requests=chance.choice((1, 100)),
            )
        )
        self._ports = 50_000
        self._devices = Devices(chance, clock, story)
        actions: dict[Callable[[], object], int] = {
            self._connect: 8,
            self._carry: 30,
            self._turn: 30,
            self._update: 6,
            self._subscribe: 3,
            self._unsubscribe: 1,
            self._cut: 2,
            self._close: 1,
        }
        self._actions, self._weights = list(actions), list(actions.values())
        self.quota = ByteQuota()
        self._loop: SimulatedLoop
        self._sessions: Sessions
        self._sockets: list[Socket] = []

    def go_on(self) -> None:
        """Run a few events."""
        for action in self._chance.choices(self._actions, self._weights, k=4):
            if action not in (self._carry, self._turn):
                self._story.append(action.__name__.strip("_"))
            action()
        self._devices.go_on()

    # The gateway process

    def begin(self) -> None:
        """Start a gateway with the account `quota`."""
        self.quota = ByteQuota()
        self._loop = SimulatedLoop(self._clock)
        asyncio._set_running_loop(self._loop)

    def serve(
        self,
        scheduler: Scheduler,
        restored: Sequence[RestoredSubscription],
        sinks: dict[str, LateSink],
        sure: Callable[[], bool],
    ) -> None:
        """Serve the clients.

        `restored`: their subscriptions of the previous process, which already notify `sinks`. `sure`: whether a refused
        update was certainly not executed.
        """
        engine = _Engine(scheduler, restored, sinks)
        metrics = _metrics()
        resume_registry = ResumeRegistry(
            engine,  # type: ignore[arg-type]
            OPEN_GUARD,
            metrics.suspended_subscriptions,
            seconds=_RESUME_FOR,
            limit=8,
            quota=self.quota,
        )
        self._sessions = Sessions(
            scheduler,
            LoopDispatcher(self._loop),
            metrics,
            guard=OPEN_GUARD,
            gate="ws",
            limits=self._limits,
            rate_limit=RateLimit(LimitSettings(), self.quota),
            resume_registry=resume_registry,
        )
        task = self._loop.create_task(resume_registry.restore())
        while not task.done():
            self._loop.turn()
        task.result()

        self._devices.serve(scheduler, metrics, self._limits, self._sessions.rate_limit, sure)

    def end(self) -> None:
        """End the gateway."""
        self._loop.turn()  # a task of the library that has not started leaves a coroutine that is never awaited
        self._devices.end()
        self._sockets.clear()
        for client in self._clients:
            client.lose()
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.turn()
        asyncio._set_running_loop(None)
        self._loop.close()

    # Invariants

    def rest(self, turn: Callable[[], None]) -> None:
        """Stop the faults: every client reconnects and receives everything."""
        for _ in range(10_000):
            for client in self._clients:
                if client.socket is None:
                    self._open(client)
            turn()
            busy = self._turn() | self._carry(1000) | any(socket.cut or socket.closing for socket in self._sockets)
            if not (busy or any(map(self._waits, self._clients))):
                break
        else:
            raise AssertionError("clients wait for ever")

        def go_on() -> None:
            turn()
            self._turn()

        self._devices.rest(go_on)

    def leave(self, turn: Callable[[], None]) -> None:
        """Disconnect all clients, and expire their suspended subscriptions."""
        for client in self._clients:
            if client.socket is not None:
                client.socket.close(1000, "")
                client.lose()
            client.subscriptions.clear()
        self._clock.advance(2 * int(_RESUME_FOR) * 1_000_000)
        for _ in range(20):  # each end is one step of the writer
            self._turn()
            turn()
        rate_limit, resume_registry = self._sessions.rate_limit, self._sessions.resume_registry
        assert not rate_limit._subscriptions, "subscriptions count that have ended"
        assert not resume_registry._slots, "subscriptions stay suspended forever"
        assert not resume_registry._connected, "subscriptions live without a connection"
        held = {who: size for who, size in self.quota._share._held.items() if who.startswith(("127.", "coap:"))}
        assert not held, f"bytes are held for clients that have gone: {held}"

    def check_updates(self, done: dict[str, list[int]], counts: dict[str, list[int]]) -> None:
        """Check the updates. `done`, `counts`: the content of the graph for clients and devices, by subject."""
        self._devices.check(counts)
        for client in self._clients:
            there = set(done.get(client.subject, ()))
            assert there >= set(range(1, client.answered + 1)), "updates that were answered are gone"
            assert there <= set(range(1, client.number + 1))

    def check_subscriptions(self, result: Callable[[str], Bag]) -> None:
        """Check the subscriptions. `result`: that of a query."""
        for client in self._clients:
            for subscribed in client.subscriptions.values():
                assert subscribed.bag == result(subscribed.query), f"{subscribed.query} is {subscribed.bag}"

    def _waits(self, client: Client) -> bool:
        return client.number > client.answered or not all(each.reported for each in client.subscriptions.values())

    # Events

    def _connect(self) -> None:
        away = [client for client in self._clients if client.socket is None]
        if away:
            self._open(self._chance.choice(away))

    def _open(self, client: Client) -> None:
        socket = client.socket = Socket(self._chance.choice((1, 3, 1000)))
        self._sockets.append(socket)
        self._ports += 1
        self._loop.create_task(self._serve(socket, f"127.0.0.1:{self._ports}"))
        client.speak()

    async def _serve(self, socket: Socket, peer: str) -> None:
        """Serve a connection like the WebSocket gate."""
        session = Session(self._sessions, socket, peer)
        try:
            while (text := await socket.read()) is not None:
                session.receive(text)
                await session.room()
        finally:
            session.close(lost=not socket.closing)
            socket.served = False

    def _carry(self, most: int = 3) -> bool:
        """Deliver messages. Return False if none is in flight."""
        moved = False
        for socket in list(self._sockets):
            client = next((client for client in self._clients if client.socket is socket), None)
            for _ in range(self._chance.randint(1, most) if not socket.cut else 0):
                if not (socket.to_gateway or socket.to_client):
                    break
                moved = True
                socket.changed()
                if socket.to_gateway:
                    socket.received.append(socket.to_gateway.popleft())
                if socket.to_client:
                    text = socket.to_client.popleft()
                    if client is not None:
                        client.hear(text)
            if client is not None and not socket.cut and not socket.closing:
                client.speak()
            if socket.cut or socket.closing:
                self._notice(socket, client)
        return moved

    def _notice(self, socket: Socket, client: Client | None) -> None:
        """The ends of a connection that is cut, or closed by the gateway, notice it."""
        socket.changed()
        if socket.cut:
            socket.lost = socket.lost or self._chance.random() < 0.3
        gone = socket.cut or (socket.closing and not socket.to_client)
        if client is not None and gone and (socket.closing or self._chance.random() < 0.5):
            client.lose()
            client = None
        if client is None and (socket.lost or socket.closing):
            self._sockets.remove(socket)

    def _turn(self) -> bool:
        return self._loop.turn()

    def _update(self) -> None:
        client = self._chance.choice(self._clients)
        if client.answered == client.number:
            client.number += 1

    def _subscribe(self) -> None:
        client = self._chance.choice(self._clients)
        if len(client.subscriptions) < 3:
            client.named += 1
            alias = str(client.named)
            query = self._chance.choice(QUERIES)
            client.subscriptions[alias] = Subscribed(query, alias, self._chance.random() < 0.7)

    def _unsubscribe(self) -> None:
        client = self._chance.choice(self._clients)
        if client.socket is not None and client.subscriptions:
            alias = self._chance.choice(list(client.subscriptions))
            subscribed = client.subscriptions[alias]
            if subscribed.reported:
                del client.subscriptions[alias]
                client.socket.to_gateway.append(json.dumps({"unsubscribe": {"spuid": subscribed.spuid}}))

    def _cut(self) -> None:
        if self._sockets:
            socket = self._chance.choice(self._sockets)
            socket.cut = True
            socket.to_client.clear()
            socket.to_gateway.clear()

    def _close(self) -> None:
        """Close the connection of a client, which reconnects later."""
        client = self._chance.choice(self._clients)
        if client.socket is not None:
            client.socket.close(1000, "")
            client.lose()


class LateSink:
    """Notifications of a subscription before its consumer takes over."""

    def __init__(self) -> None:
        self._early: list[SubscriberNotification | SubscribeFailed] = []
        self._to: Sink = self._early.append

    def __call__(self, item: SubscriberNotification | SubscribeFailed) -> None:
        self._to(item)

    def hand_over(self, to: Sink) -> None:
        """Pass notifications on from now on."""
        self._to = to
        for item in self._early:
            to(item)


class _Engine:
    """The engine for the resume registry, whose earlier subscriptions are those of the simulated clients."""

    def __init__(
        self, scheduler: Scheduler, restored: Sequence[RestoredSubscription], sinks: dict[str, LateSink]
    ) -> None:
        self._restored = restored
        self._sinks = sinks
        self.unsubscribe = scheduler.unsubscribe
        self.transfer = scheduler.transfer

    def take_over(self, sink: Callable[[str], Sink]) -> Future[list[RestoredSubscription]]:
        for one in self._restored:
            self._sinks[one.spuid].hand_over(sink(one.spuid))
        future: Future[list[RestoredSubscription]] = Future()
        future.set_result(list(self._restored))
        return future


def rows(results: dict[str, Any]) -> Bag:
    """Return results in their JSON form."""
    return Counter(json.dumps(binding, sort_keys=True) for binding in results["results"]["bindings"])


@functools.cache
def _metrics() -> Metrics:
    return Metrics()
