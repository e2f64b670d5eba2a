"""Base of the blocking iterators of notifications, observations and reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class SyncIterator(ABC, Generic[T]):
    """Blocking iterator that ends when it is closed. A `with` block closes it at its end."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> T | None:
        """Return the next item; None when closed. Raises `TimeoutError` after `timeout` seconds."""

    @abstractmethod
    def close(self) -> None:
        """End the iteration, also in other threads."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self.next()
        if item is None:
            raise StopIteration
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def next_item(items: AsyncIterator[T]) -> T | None:
    """Return the next item; None at the end."""
    return await anext(items, None)
