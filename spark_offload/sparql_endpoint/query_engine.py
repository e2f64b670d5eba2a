"""Interface between the endpoint and the engine that evaluates queries."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from spark_offload.history import History


class QueryEngine(Protocol):
    """An engine. Several threads use it at the same time."""

    @property
    def largest(self) -> int:
        """Return the maximum size of a query, which bounds the time of planning: nothing can cancel it then."""

    def alive(self) -> bool:
        """Return whether it runs."""

    def query(self, identifier: str) -> AbstractContextManager[History]:
        """Return the newest version of the history for the queries of one thread, until the context ends.

        Raises `TableRefused`.
        """

    def cancel(self, identifier: str) -> None:
        """End the queries of a context. Nothing happens if it has ended, or has none yet: call it again."""
