"""Fair queue: priorities first, then clients in turn, each charged for the time that its work took.

Start-time fair queuing (Goyal, Vin and Cheng, SIGCOMM 1996) with costs that are known only after the work is done. A
client with expensive requests gets the same share of the writer's time as one with cheap requests, so it gets fewer
turns. The requests of one client keep their order. The queue reads no clock: its owner reports the cost of the work.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from edge.engine.admission.fair_share import GATEWAY
from edge.protocol.access import PRIORITIES, Priority

SHARE: Final[dict[Priority, int]] = {"normal": 4, "low": 16}
"""How many times the length of its own last turn a lower priority waits for higher ones before it gets a turn. So it
never starves.
"""
LEAST_TURN: Final = 10_000
"""Lower bound of the length of that last turn, in microseconds."""
LEAST_COST: Final = 20
"""Lower bound of the charge for any piece of work, in microseconds. So turns rotate even if the clock does not advance.
"""

LEAD: Final = 20_000
"""Upper bound of the credit of a returning client, in microseconds. A client that used less than its share goes first,
so it waits for the running piece of work only, and not for one piece of each other client.
"""

_FORGET_FROM: Final = 1_000
"""Number of clients from which idle ones are evicted."""


class Item(Protocol):
    """An item of the queue."""

    source: str
    """The client that sent the item. Empty: the gateway itself, whose work has high priority."""
    priority: Priority

    @property
    def ready(self) -> bool:
        """Whether the item can be carried out now. If not, it blocks later items of its client only."""


T = TypeVar("T", bound=Item)


class _Client(Generic[T]):
    """One client: its waiting items and its virtual time."""

    __slots__ = ("active", "entry", "items", "outside", "priority", "unready", "virtual", "wanted")

    def __init__(self, virtual: float) -> None:
        self.items: deque[T] = deque()
        self.priority: Priority = "normal"
        """The level that the client is in."""
        self.wanted: Priority = "normal"
        """The client's own level. It is in the low level instead while its step rate is exceeded."""
        self.virtual = virtual
        """Charged microseconds, starting at the virtual time of the level when the client became active."""
        self.outside = False
        """Whether one of its items was taken and is being evaluated elsewhere."""
        self.unready = False
        """Whether its first item was found not to be ready."""
        self.active = False
        """Whether it has a valid entry in its level's heap."""
        self.entry = 0
        """Number of that entry. Entries with another number are stale and skipped."""


class _PriorityLevel(Generic[T]):
    """The clients of one priority."""

    __slots__ = ("active", "heap", "last", "passed", "virtual")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, _Client[T]]] = []
        self.active = 0
        """Number of clients with an item to take."""
        self.virtual = 0.0
        """Virtual time at which a new client starts: the level time that each active client has received."""
        self.passed = 0.0
        """Microseconds of higher levels while this one waited, since its last turn."""
        self.last = 0.0
        """Microseconds of its last turn."""


class FairQueue(Generic[T]):
    """Queue of items by priority and client. Not thread-safe: the owner's lock protects it."""

    def __init__(self, late: Callable[[str], bool] = lambda _: False) -> None:
        """`late`: returns whether a client exceeds its step rate. Its items then wait behind others, as if `low`."""
        self._late = late
        self._by_priority: dict[Priority, _PriorityLevel[T]] = {priority: _PriorityLevel() for priority in PRIORITIES}
        self._clients: dict[str, _Client[T]] = {}
        self._numbers = itertools.count(1)
        self._forget_at = _FORGET_FROM

    def __bool__(self) -> bool:
        """Return whether an item can be taken now."""
        return self._next_level() is not None

    @property
    def empty(self) -> bool:
        """Whether the queue has no items, and no taken item is being evaluated elsewhere."""
        return not any(client.items or client.outside for client in self._clients.values())

    def put(self, item: T) -> None:
        """Append an item to those of its client. It gets their priority, so that their order holds."""
        client = self._client(item.source)
        # The priority can change only while the client has no items, so that they keep their order.
        if not client.items and not client.outside:
            client.wanted = "high" if item.source == GATEWAY else item.priority
            self._place(item.source, client)
        client.items.append(item)
        self._activate(client)

    def take(self, fits: Callable[[T], bool] = lambda _: True) -> T | None:
        """Remove and return the next item. None: nothing can be taken now, or the next item does not fit."""
        while (level := self._next_level()) is not None:
            client = self._first(level)
            item = client.items[0]
            # The client leaves its level until `look_again`, so that others do not wait for it.
            if not item.ready:
                client.unready = True
                self._deactivate(client)
                continue
            if not fits(item):
                return None
            client.items.popleft()
            # As in start-time fair queuing, the virtual time is the start tag of the item in service, and never falls.
            level.virtual = max(level.virtual, client.virtual)
            level.passed = level.last = 0.0
            self._deactivate(client)
            self._activate(client)
            return item
        return None

    def look_late(self, source: str) -> None:
        """Move a client to the low level, or back, after it used steps."""
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
        level = self._by_priority[client.priority]
        client.virtual += cost
        level.last += cost
        # The level's virtual time grows by the share of one active client. This client counts even if it just became
        # idle.
        level.virtual += cost / (level.active + (not client.active))
        for priority in reversed(PRIORITIES):
            if priority == client.priority:
                break
            if self._by_priority[priority].active:
                self._by_priority[priority].passed += cost

    def hold(self, item: T) -> None:
        """Note that a taken item is evaluated elsewhere: no more items of its client are taken until `put_back`."""
        client = self._client(item.source)
        client.outside = True
        self._deactivate(client)

    def put_back(self, item: T) -> None:
        """Return a held item to the front of its client's items."""
        client = self._client(item.source)
        client.outside = False
        client.items.appendleft(item)
        # The time outside gives no credit over clients that waited in the queue.
        client.virtual = max(client.virtual, self._by_priority[client.priority].virtual)
        self._activate(client)

    def look_again(self, source: str) -> None:
        """Note that an item of this client has become ready."""
        client = self._clients.get(source)
        if client is not None and client.unready:
            client.unready = False
            self._activate(client)

    def clear(self) -> list[T]:
        """Remove and return all items, ready or not."""
        left = [item for client in self._clients.values() for item in client.items]
        for client in self._clients.values():
            client.items.clear()
            client.unready = False
            self._deactivate(client)
        return left

    def __iter__(self) -> Iterator[T]:
        """Yield the first item of each client."""
        return (client.items[0] for client in self._clients.values() if client.items)

    def _place(self, source: str, client: _Client[T]) -> None:
        """Choose the level of a client that is not active."""
        before = self._by_priority[client.priority]
        # Debt moves with the client in full, credit only up to `LEAD`.
        ahead = max(-LEAD, client.virtual - before.virtual)
        client.priority = "low" if self._late(source) else client.wanted
        client.virtual = self._by_priority[client.priority].virtual + ahead

    def _client(self, source: str) -> _Client[T]:
        client = self._clients.get(source)
        if client is None:
            if len(self._clients) >= self._forget_at:
                self._forget()
            # Starts at the level's present time: a new client gets its share from now on, and none for the past.
            client = self._clients[source] = _Client(self._by_priority["normal"].virtual)
        return client

    def _forget(self) -> None:
        """Evict clients without items and without debt."""
        levels = self._by_priority
        self._clients = {
            source: client
            for source, client in self._clients.items()
            if client.items or client.outside or client.virtual > levels[client.priority].virtual
        }
        # Twice as many, so that the search is rare if most clients have to stay.
        self._forget_at = max(_FORGET_FROM, 2 * len(self._clients))

    def _activate(self, client: _Client[T]) -> None:
        if client.items and not (client.active or client.outside or client.unready):
            client.active = True
            level = self._by_priority[client.priority]
            level.active += 1
            self._push(level, client)

    def _deactivate(self, client: _Client[T]) -> None:
        if client.active:
            client.active = False
            client.entry = 0
            self._by_priority[client.priority].active -= 1

    def _push(self, level: _PriorityLevel[T], client: _Client[T]) -> None:
        client.entry = next(self._numbers)
        heapq.heappush(level.heap, (client.virtual, client.entry, client))

    def _next_level(self) -> _PriorityLevel[T] | None:
        """Return the highest active level, or the lowest one that has waited for its share."""
        first: _PriorityLevel[T] | None = None
        due: _PriorityLevel[T] | None = None
        for priority, level in self._by_priority.items():
            if not level.active:
                continue
            if first is None:
                first = level
            elif level.passed >= SHARE[priority] * max(level.last, LEAST_TURN):
                due = level
        return due or first

    def _first(self, level: _PriorityLevel[T]) -> _Client[T]:
        """Return the active client with the least virtual time; of several, the one that has waited longest."""
        heap = level.heap
        while True:
            virtual, entry, client = heap[0]
            # Deactivation leaves entries in the heap; stale ones are removed here.
            if client.entry != entry:
                heapq.heappop(heap)
            elif virtual < client.virtual:  # charged since it was pushed
                heapq.heappop(heap)
                self._push(level, client)
            else:
                return client
