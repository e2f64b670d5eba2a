"""Queue of evaluations: clients take turns, and a client that exhausts its budget waits.

The budget is a rate: seconds of evaluation per second. A client may exceed it by `BURST` seconds, so a few cheap
evaluations never wait.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, Generic, TypeVar

from edge.engine.admission.fair_share import GATEWAY
from edge.engine.admission.round_robin import RoundRobin
from edge.engine.admission.token_bucket import TokenBuckets

T = TypeVar("T")

BURST: Final = 1.0
"""Seconds of evaluation by which a client may exceed its budget."""


class EvaluationQueue(Generic[T]):
    """Queue of items by client. Access requires the lock of the owner; the caller supplies the time in seconds."""

    def __init__(self) -> None:
        self._items: RoundRobin[T] = RoundRobin()
        self._rate = TokenBuckets(0, BURST)

    def limit(self, budget: float) -> None:
        """Set the budget: seconds of evaluation per second for each client; 0 for no limit."""
        self._rate = TokenBuckets(budget, BURST)

    def __len__(self) -> int:
        """Number of waiting items."""
        return len(self._items)

    def put(self, clients: Iterable[str], item: T) -> None:
        """Add an item. The client with the smallest debt queues and pays for it."""
        # Several clients may share an evaluation: the one that can afford it first pays.
        self._items.put(min(clients, key=self._rate.full_at, default=GATEWAY), item)

    def take(self, now: float, without: Container[str] = ()) -> tuple[str, T] | None:
        """Return the next item and the client that pays for it, excluding the clients `without`.

        Return None if nothing may start now.
        """
        return self._items.take(lambda client: client not in without and not self._rate.delay(client, now))

    def wait(self, now: float, without: Container[str] = ()) -> float | None:
        """Return the seconds until an item of clients other than `without` may start; None if nothing waits."""
        return min((self._rate.delay(client, now) for client in self._items if client not in without), default=None)

    def clear(self) -> list[T]:
        """Remove and return all items."""
        return self._items.clear()

    def charge(self, client: str, seconds: float, now: float) -> None:
        """Add an evaluation to the debt of its client. The gateway's own subscriptions have no budget."""
        self._rate.spend(client, seconds, now)
