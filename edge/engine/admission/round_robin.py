"""Turns: what waits, each client's in its turn, and what one client asked in the order in which it asked."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from edge.engine.admission.slots import Slots

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """What waits where the order of clients does not matter. It belongs to whoever holds its owner's lock.

    With n clients that wait, what a client asked first is next after n others at the most.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: see `Slots`. What has been taken holds its place until it is `done`."""
        self._places = Slots(limit)
        self._waiting: dict[str, deque[T]] = {}
        """By client, whose turn is next first."""

    @property
    def pending(self) -> int:
        """What waits, or has been taken and is not done."""
        return self._places.taken

    def held(self, who: str) -> int:
        """How much of that is one client's."""
        return self._places.held.get(who, 0)

    def put(self, who: str, item: T) -> bool:
        """Add to what a client waits for. False: it has no place for that."""
        if not self._places.take(who, 1):
            return False
        self._waiting.setdefault(who, deque()).append(item)
        return True

    def take(self) -> tuple[str, T] | None:
        """What is next, and whose it is. None: nothing waits."""
        for who, items in self._waiting.items():
            del self._waiting[who]
            item = items.popleft()
            if items:
                self._waiting[who] = items  # at the end
            return who, item
        return None

    def done(self, who: str) -> None:
        """Something that was taken does not need its place any more."""
        self._places.give_back(who, 1)
