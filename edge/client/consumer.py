"""Consumer (SEPA paper): subscribes to one query of a profile and maintains its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Self, TypeVar

from edge.client.backlog import Notification
from edge.client.brokers import Agent, Brokers
from edge.client.handlers import Faults
from edge.client.rows import Row
from edge.client.subscription import Subscription
from edge.jsap import Profile, Value

RowHandler = Callable[[Row], Awaitable[object] | object]
DeltaHandler = Callable[[Notification], Awaitable[object] | object]

_RowHandler = TypeVar("_RowHandler", bound=RowHandler)


class Consumer(Agent):
    """Consumer of one query. `async with` waits for the first result. Then iterate over it, or `run` its handlers.

    A plain function as handler runs on a worker thread. For each notification the handlers run one after the other: for
    each removed row, for each added row, for the whole notification. Raises `UnknownEntry`, `BindingError`.
    """

    def __init__(
        self,
        profile: Profile,
        name: str,
        bindings: Mapping[str, Value] | None = None,
        *,
        handler: DeltaHandler | None = None,
        brokers: Brokers | None = None,
        stop_on_error: bool = False,
    ) -> None:
        super().__init__(brokers)
        self.entry = profile.query(name)
        self.handler = handler
        self._client = self._brokers.client(self.entry)
        self._text = self.entry.text(bindings or {})
        self._faults = Faults(stop=stop_on_error)
        self._added: list[RowHandler] = []
        self._removed: list[RowHandler] = []
        self._subscription: Subscription | None = None
        self._starting = asyncio.Lock()

    @property
    def results(self) -> list[Row]:
        """Newest result. It may be newer than the notification in progress."""
        return [] if self._subscription is None else self._subscription.results

    def on_added(self, handler: _RowHandler) -> _RowHandler:
        """Register a handler for each added row. A decorator."""
        self._added.append(handler)
        return handler

    def on_removed(self, handler: _RowHandler) -> _RowHandler:
        """Register a handler for each removed row. A decorator."""
        self._removed.append(handler)
        return handler

    async def start(self) -> None:
        """Subscribe, once, and wait for the first result. Raises `Refused`, `Closed`."""
        async with self._starting:
            if self._subscription is None:
                graphs = self.entry.graphs
                self._subscription = await self._client.subscribe(
                    self._text, default_graphs=graphs.default, named_graphs=graphs.named
                )

    async def run(self) -> None:
        """Call the handlers until closed. Raises `Refused`; with `stop_on_error` the first handler exception."""
        await self._faults.until(self._work())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        await self.start()
        assert self._subscription is not None  # noqa: S101 - `start` has made it
        notification = await anext(self._subscription)
        await self._hand(notification)
        return notification

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.close()
        await super().close()

    async def _work(self) -> None:
        async for _ in self:
            pass

    async def _hand(self, notification: Notification) -> None:
        for handlers, rows in ((self._removed, notification.removed), (self._added, notification.added)):
            if handlers:
                for row in rows:
                    for handler in handlers:
                        await self._faults.guard(handler, row, row)
        if self.handler is not None:
            await self._faults.guard(self.handler, notification, notification)
