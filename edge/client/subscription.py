"""Subscription for applications: an asynchronous iterator of notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from edge.client.backlog import Notification, NotificationBacklog
from edge.client.errors import ClientError
from edge.client.rows import Row


class Subscription:
    """Iterator of notifications; it ends when it is closed. It supports one reader at a time.

    After a reconnection the application gets the changes of the meantime, without duplicates. Iteration raises
    `Refused` when the broker no longer serves the query.
    """

    def __init__(
        self,
        sparql: str,
        default_graphs: Sequence[str] | None,
        named_graphs: Sequence[str] | None,
        waiting: int,
        end: Callable[[Subscription], Coroutine[Any, Any, None]],
    ) -> None:
        self.sparql = sparql
        self.members: dict[str, Any] = {"sparql": sparql}
        """The subscribe request."""
        if default_graphs is not None:
            self.members["default-graph-uri"] = list(default_graphs)
        if named_graphs is not None:
            self.members["named-graph-uri"] = list(named_graphs)
        self.variables: tuple[str, ...] = ()
        """Variables of the query's result, including those that no row binds."""
        self.spuid = ""
        """Identifier that the broker gave the subscription. It may change when the client reconnects."""
        self._backlog = NotificationBacklog(waiting)
        self._end = end
        self._error: ClientError | None = None
        self._ended = False
        self._news = asyncio.Event()

    @property
    def results(self) -> list[Row]:
        """Newest result. It may be newer than the last notification read."""
        return self._backlog.rows()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while True:
            if not self._ended and (notification := self._backlog.take()) is not None:
                return notification
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            # No `await` between the checks above and this line, so no news is lost.
            self._news.clear()
            await self._news.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Unsubscribe. No notification is delivered after that."""
        if not self._ended:
            self.end()
            await self._end(self)

    def replace(self, rows: Iterable[Row]) -> None:
        """Take a whole result."""
        self._backlog.replace(rows)
        self._news.set()

    def change(self, added: Iterable[Row], removed: Iterable[Row], merged: int = 1) -> None:
        """Take a change; `merged` is the number of notifications that the broker combined."""
        self._backlog.change(added, removed, merged)
        self._news.set()

    def restart(self) -> None:
        """Deliver the whole result again."""
        self._backlog.restart()
        self._news.set()

    def fail(self, error: ClientError) -> None:
        """End with an error: the broker no longer serves it. Waiting notifications are delivered first."""
        self._error = error
        self._news.set()

    def end(self) -> None:
        """End: the subscription or its client was closed."""
        self._ended = True
        self._news.set()
