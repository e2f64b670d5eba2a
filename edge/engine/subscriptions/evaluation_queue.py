"""Fair queue of evaluations: clients take turns, and a client that exhausts its budget waits.

The budget is a rate: seconds of evaluation per second. An evaluation adds to the debt of its client, which the budget
pays off over time. A client may exceed its budget by `BURST` seconds, so a few cheap evaluations never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import Final, Generic, TypeVar

from edge.engine.admission.slots import GATEWAY

T = TypeVar("T")

BURST: Final = 1.0
"""Seconds of evaluation by which a client may exceed its budget."""

_MANY: Final = 1024
"""Number of clients in the table of debts at which paid debts are removed."""


class EvaluationQueue(Generic[T]):
    """Queue of items by client. Access requires the lock of the owner; the caller supplies the time."""

    def __init__(self) -> None:
        self.budget = 0.0
        """Seconds of evaluation per second for each client; 0 for no limit."""
        self._waiting: dict[str, deque[T]] = {}
        """Items by client; the first client is the next in turn."""
        self._free_at: dict[str, float] = {}
        """Time by client at which its debt is paid off."""

    def __len__(self) -> int:
        """Number of waiting items."""
        return sum(map(len, self._waiting.values()))

    def put(self, clients: Iterable[str], item: T) -> None:
        """Add an item. The client with the smallest debt queues and pays for it."""
        free_at = self._free_at
        client = min(clients, key=lambda name: free_at.get(name, 0.0), default=GATEWAY)
        self._waiting.setdefault(client, deque()).append(item)

    def take(self, now: float, without: Container[str] = ()) -> tuple[str, T] | None:
        """Return the next item and the client that pays for it, excluding the clients `without`.

        Return None if nothing may start now.
        """
        for client, items in self._waiting.items():
            if client in without or self.delay(client, now) > 0:
                continue
            del self._waiting[client]
            item = items.popleft()
            if items:
                self._waiting[client] = items  # behind all other clients
            return client, item
        return None

    def wait(self, now: float, without: Container[str] = ()) -> float | None:
        """Return the seconds until an item of clients other than `without` may start; None if nothing waits."""
        return min((self.delay(client, now) for client in self._waiting if client not in without), default=None)

    def clear(self) -> list[T]:
        """Remove and return all items."""
        left = [item for items in self._waiting.values() for item in items]
        self._waiting.clear()
        return left

    def delay(self, client: str, now: float) -> float:
        """Return the seconds that a client still has to wait."""
        if not self.budget or client == GATEWAY:
            return 0.0
        return max(0.0, self._free_at.get(client, 0.0) - now - BURST / self.budget)

    def charge(self, client: str, seconds: float, now: float) -> None:
        """Add an evaluation to the debt of its client. The gateway's own subscriptions have no budget."""
        if not self.budget or client == GATEWAY:
            return
        self._free_at[client] = max(self._free_at.get(client, 0.0), now) + seconds / self.budget
        if len(self._free_at) > _MANY:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
