"""Round-robin queue: serves clients in turn, and the items of one client in order."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from edge.engine.admission.slots import Slots

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Queue of items, served round-robin by client. Not thread-safe: the owner's lock protects it.

    With n waiting clients, the first item of a client is taken after at most n others.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: see `Slots`. A taken item holds its slot until `done`."""
        self._slots = Slots(limit)
        self._waiting: dict[str, deque[T]] = {}
        """Items by client; the next client to serve comes first."""

    @property
    def pending(self) -> int:
        """Number of items that wait, or were taken and are not done."""
        return self._slots.taken

    def held(self, client: str) -> int:
        """Return the number of those items that belong to one client."""
        return self._slots.held.get(client, 0)

    def put(self, client: str, item: T) -> bool:
        """Append an item of a client. Returns False if the client has no free slot."""
        if not self._slots.take(client, 1):
            return False
        self._waiting.setdefault(client, deque()).append(item)
        return True

    def take(self) -> tuple[str, T] | None:
        """Remove the next item. Returns its client and the item, or None if nothing waits."""
        for client, items in self._waiting.items():
            del self._waiting[client]
            item = items.popleft()
            if items:
                self._waiting[client] = items  # at the end
            return client, item
        return None

    def done(self, client: str) -> None:
        """Free the slot of an item that was taken."""
        self._slots.give_back(client, 1)
