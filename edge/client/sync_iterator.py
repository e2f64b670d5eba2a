"""Base of the blocking iterators of notifications, observations and reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Generic, Self, TypeVar

from edge.client.closing import Closing

T = TypeVar("T")


class SyncIterator(Closing, Generic[T]):
    """Blocking iterator that ends when it is closed. A `with` block closes it at its end."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """Return the next item; None when closed. Raises `TimeoutError` after `timeout` seconds."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self.next()
        if item is None:
            raise StopIteration
        return item


async def next_item(items: AsyncIterator[T]) -> T | None:
    """Return the next item; None at the end."""
    return await anext(items, None)
