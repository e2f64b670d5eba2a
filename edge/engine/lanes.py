"""Lanes: what waits for the writer, by priority. First come, first served in each, and whatever one client asks for.

The first lane goes first. One that waits is passed over so many times and no more, so nothing starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from edge.protocol.access import PRIORITIES, Priority

PATIENCE: Final[dict[Priority, int]] = {"normal": 4, "low": 16}
"""How often something else is taken while these wait; then they are next."""


class Waiting(Protocol):
    """What waits."""

    source: str
    """Who asked; empty: the gateway itself."""
    priority: Priority


T = TypeVar("T", bound=Waiting)


class Lanes(Generic[T]):
    """They belong to whoever holds their owner's lock."""

    def __init__(self) -> None:
        self._lanes: dict[Priority, deque[T]] = {priority: deque() for priority in PRIORITIES}
        self._passed = dict.fromkeys(PRIORITIES, 0)
        """How often each lane has been passed over since something of it was taken."""
        self._of: dict[str, tuple[Priority, int]] = {}
        """By client: the lane in which something of it waits, and how much."""

    def __bool__(self) -> bool:
        return any(self._lanes.values())

    def put(self, item: T) -> None:
        """Add to the end of its lane, or of that in which something of its client waits: it stays behind that."""
        priority = item.priority
        if item.source:
            priority, count = self._of.get(item.source, (priority, 0))
            self._of[item.source] = priority, count + 1
        self._lanes[priority].append(item)

    def take(self, fits: Callable[[T, list[T]], bool]) -> list[T]:
        """What is next, and what may go along with it, as long as the next one of a lane `fits` to what is taken.

        Something must wait.
        """
        busy = [priority for priority in PRIORITIES if self._lanes[priority]]
        first = busy[0] if len(busy) == 1 else self._due(busy)
        taken = [self._leave(first)]
        used = {first}
        for priority in busy if first == busy[0] else (first, *busy):
            lane = self._lanes[priority]
            while lane and fits(lane[0], taken):
                taken.append(self._leave(priority))
                used.add(priority)
        for priority in busy:
            self._passed[priority] = 0 if priority in used else self._passed[priority] + 1
        return taken

    def clear(self) -> list[T]:
        """Take everything out."""
        left = [item for lane in self._lanes.values() for item in lane]
        for lane in self._lanes.values():
            lane.clear()
        self._of.clear()
        return left

    def _due(self, busy: list[Priority]) -> Priority:
        """The lane that has waited long enough, else the first."""
        due = [priority for priority in busy[1:] if self._passed[priority] >= PATIENCE[priority]]
        return due[-1] if due else busy[0]

    def _leave(self, priority: Priority) -> T:
        item = self._lanes[priority].popleft()
        if item.source:
            _, count = self._of[item.source]
            if count == 1:
                del self._of[item.source]
            else:
                self._of[item.source] = priority, count - 1
        return item
