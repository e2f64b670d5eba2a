"""Base of the blocking objects that a `with` block closes at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A blocking client, agent or iterator: use it with `with`, or call `close`."""

    @abstractmethod
    def close(self) -> None:
        """End it, from any thread. Further calls have no effect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
