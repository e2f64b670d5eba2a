"""Round-robin queue: serves clients in turn, and the items of one client in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Queue of items, served round-robin by client. Not thread-safe: the owner's lock protects it.

    With n waiting clients, the first item of a client is taken after at most n others.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        """Items by client; the next client to serve comes first."""

    def __len__(self) -> int:
        """Number of waiting items."""
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[str]:
        """Yield the clients whose items wait, the next one first."""
        return iter(self._waiting)

    def put(self, client: str, item: T) -> None:
        """Append an item of a client."""
        self._waiting.setdefault(client, deque()).append(item)

    def take(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, T] | None:
        """Remove the next item, of clients that `may` have a turn. Returns the client and the item, or None."""
        for client, items in self._waiting.items():
            if may(client):
                del self._waiting[client]
                item = items.popleft()
                if items:
                    self._waiting[client] = items  # behind all other clients
                return client, item
        return None

    def clear(self) -> list[T]:
        """Remove and return all items."""
        left = [item for items in self._waiting.values() for item in items]
        self._waiting.clear()
        return left
