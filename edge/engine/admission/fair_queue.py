"""Fair queue: priorities first, then clients in turn, each charged for the time that its work has taken.

Start-time fair queuing (Goyal, Vin and Cheng, SIGCOMM 1996) with costs that are known only after the work is done. A
client with expensive requests gets the same share of the writer's time as one with cheap requests, so it gets fewer
turns. The requests of one client keep their order. The queue reads no clock: its owner reports what work has cost.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from edge.engine.admission.slots import GATEWAY
from edge.protocol.access import PRIORITIES, Priority

SHARE: Final[dict[Priority, int]] = {"normal": 4, "low": 16}
"""How many times as long as its own last turn a lower priority waits for higher ones; then it has a turn, so it never
starves."""
LEAST_TURN: Final = 10_000
"""Microseconds that such a turn counts as at least."""
LEAST_COST: Final = 20
"""Microseconds that any piece of work is charged at least: turns also rotate on a clock that stands still."""

LEAD: Final = 20_000
"""Microseconds by which a client that has had less than its share goes before others when it comes back. So it waits
for the piece that runs, and not for one of each client, which all have had about the same."""

_FORGET_FROM: Final = 1_000
"""Clients from which those that have nothing waiting are looked for and forgotten."""


class Item(Protocol):
    """What waits."""

    source: str
    """The client that asked; empty: the gateway itself, whose work has high priority."""
    priority: Priority

    @property
    def ready(self) -> bool:
        """Whether it can be carried out now. While it cannot, later items of its client wait, others do not."""


T = TypeVar("T", bound=Item)


class _Client(Generic[T]):
    """One client: what waits of it, and its virtual time."""

    __slots__ = ("active", "entry", "items", "outside", "priority", "unready", "virtual", "wanted")

    def __init__(self, virtual: float) -> None:
        self.items: deque[T] = deque()
        self.priority: Priority = "normal"
        """The lane in which it is."""
        self.wanted: Priority = "normal"
        """That in which it is unless it has used more than it may."""
        self.virtual = virtual
        """Microseconds that it has been charged, counted from the lane's virtual time when it became active."""
        self.outside = False
        """Whether one of its items was taken and is being evaluated elsewhere."""
        self.unready = False
        """Whether its first item was found not to be ready."""
        self.active = False
        """Whether it has a valid entry in its lane's heap."""
        self.entry = 0
        """Number of that entry. Entries with another number are stale and skipped."""


class _Lane(Generic[T]):
    """The clients of one priority."""

    __slots__ = ("active", "heap", "last", "passed", "virtual")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, _Client[T]]] = []
        self.active = 0
        """Clients that have something to take."""
        self.virtual = 0.0
        """Where a client that comes now begins: what each active client has had of the lane's time."""
        self.passed = 0.0
        """Microseconds that higher lanes took while this one waited, since its last turn."""
        self.last = 0.0
        """Microseconds that its last turn took."""


class FairQueue(Generic[T]):
    """Not thread-safe: its owner holds a lock."""

    def __init__(self, late: Callable[[str], bool] = lambda _: False) -> None:
        """`late`: whether a client has used more than it may; its items wait behind those of others, as of `low`."""
        self._late = late
        self._lanes: dict[Priority, _Lane[T]] = {priority: _Lane() for priority in PRIORITIES}
        self._clients: dict[str, _Client[T]] = {}
        self._numbers = itertools.count(1)
        self._forget_at = _FORGET_FROM

    def __bool__(self) -> bool:
        """Whether there is something to take now."""
        return any(lane.active for lane in self._lanes.values())

    @property
    def empty(self) -> bool:
        """Whether nothing is in it, and nothing that was taken from it is outside."""
        return not any(client.items or client.outside for client in self._clients.values())

    def put(self, item: T) -> None:
        """Add an item behind all others of its client. It takes the priority of those, so that order holds."""
        client = self._client(item.source)
        if not client.items and not client.outside:
            client.wanted = "high" if item.source == GATEWAY else item.priority
            self._place(item.source, client)
        client.items.append(item)
        self._activate(client)

    def take(self, fits: Callable[[T], bool] = lambda _: True) -> T | None:
        """Remove and return the next item. None: nothing can be taken now, or the next item does not fit."""
        while (lane := self._next_lane()) is not None:
            client = self._first(lane)
            item = client.items[0]
            if not item.ready:
                client.unready = True
                self._deactivate(client)
                continue
            if not fits(item):
                return None
            client.items.popleft()
            lane.virtual = max(lane.virtual, client.virtual)
            lane.passed = lane.last = 0.0
            self._deactivate(client)
            self._activate(client)
            return item
        return None

    def look_late(self, source: str) -> None:
        """A client has used steps: it may have to wait behind others from now on."""
        client = self._clients.get(source)
        if client is not None and client.wanted != "low":
            active = client.active
            self._deactivate(client)
            self._place(source, client)
            if active:
                self._activate(client)

    def charge(self, source: str, cost: float) -> None:
        """Charge a client for microseconds of work. May be called several times for one item."""
        client = self._clients.get(source)
        if client is None:
            return
        lane = self._lanes[client.priority]
        client.virtual += cost
        lane.last += cost
        lane.virtual += cost / (lane.active + (not client.active))
        for priority in reversed(PRIORITIES):
            if priority == client.priority:
                break
            if self._lanes[priority].active:
                self._lanes[priority].passed += cost

    def hold(self, item: T) -> None:
        """An item that was taken is evaluated elsewhere: take nothing more of its client until `put_back`."""
        client = self._client(item.source)
        client.outside = True
        self._deactivate(client)

    def put_back(self, item: T) -> None:
        """Such an item is next of its client again."""
        client = self._client(item.source)
        client.outside = False
        client.items.appendleft(item)
        client.virtual = max(client.virtual, self._lanes[client.priority].virtual)
        self._activate(client)

    def look_again(self, source: str) -> None:
        """An item of this client has become ready."""
        client = self._clients.get(source)
        if client is not None and client.unready:
            client.unready = False
            self._activate(client)

    def clear(self) -> list[T]:
        """Take everything out, ready or not."""
        left = [item for client in self._clients.values() for item in client.items]
        for client in self._clients.values():
            client.items.clear()
            client.unready = False
            self._deactivate(client)
        return left

    def __iter__(self) -> Iterator[T]:
        """The first item of each client."""
        return (client.items[0] for client in self._clients.values() if client.items)

    def _place(self, source: str, client: _Client[T]) -> None:
        """Choose the lane of a client that is not active."""
        before = self._lanes[client.priority]
        ahead = max(-LEAD, client.virtual - before.virtual)
        client.priority = "low" if self._late(source) else client.wanted
        client.virtual = self._lanes[client.priority].virtual + ahead

    def _client(self, source: str) -> _Client[T]:
        client = self._clients.get(source)
        if client is None:
            if len(self._clients) >= self._forget_at:
                self._forget()
            client = self._clients[source] = _Client(self._lanes["normal"].virtual)
        return client

    def _forget(self) -> None:
        """Forget clients that have nothing waiting and no debt."""
        lanes = self._lanes
        self._clients = {
            source: client
            for source, client in self._clients.items()
            if client.items or client.outside or client.virtual > lanes[client.priority].virtual
        }
        self._forget_at = max(_FORGET_FROM, 2 * len(self._clients))

    def _activate(self, client: _Client[T]) -> None:
        if client.items and not (client.active or client.outside or client.unready):
            client.active = True
            lane = self._lanes[client.priority]
            lane.active += 1
            self._push(lane, client)

    def _deactivate(self, client: _Client[T]) -> None:
        if client.active:
            client.active = False
            client.entry = 0
            self._lanes[client.priority].active -= 1

    def _push(self, lane: _Lane[T], client: _Client[T]) -> None:
        client.entry = next(self._numbers)
        heapq.heappush(lane.heap, (client.virtual, client.entry, client))

    def _next_lane(self) -> _Lane[T] | None:
        """The highest lane, or a lower one that has waited for its share. The lowest of those goes first."""
        first: _Lane[T] | None = None
        due: _Lane[T] | None = None
        for priority, lane in self._lanes.items():
            if not lane.active:
                continue
            if first is None:
                first = lane
            elif lane.passed >= SHARE[priority] * max(lane.last, LEAST_TURN):
                due = lane
        return due or first

    def _first(self, lane: _Lane[T]) -> _Client[T]:
        """The active client with the least virtual time; of several, the one that has waited longest."""
        heap = lane.heap
        while True:
            virtual, entry, client = heap[0]
            if client.entry != entry:
                heapq.heappop(heap)
            elif virtual < client.virtual:  # charged since
                heapq.heappop(heap)
                self._push(lane, client)
            else:
                return client
