"""Aggregator (SEPA paper): subscribes to one query of a profile and answers notifications with an update."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from edge.client.backlog import Notification
from edge.client.brokers import Brokers
from edge.client.consumer import Consumer
from edge.client.handlers import GRACE, is_coroutine
from edge.client.pipeline import Pipeline, PlainPipeline
from edge.client.producer import Producer
from edge.jsap import Profile, Value

AggregatorHandler = Callable[[Notification, Any], Awaitable[object] | object]
"""Called with a notification and a `Pipeline` for updates; a plain function gets a `PlainPipeline`."""


class Aggregator(Consumer):
    """A consumer whose handler may also send updates."""

    def __init__(
        self,
        profile: Profile,
        query: str,
        update: str,
        handler: AggregatorHandler,
        bindings: Mapping[str, Value] | None = None,
        *,
        repeat: bool = False,
        brokers: Brokers | None = None,
        stop_on_error: bool = False,
    ) -> None:
        """`repeat` is the default of its updates, see `Client.update`."""
        super().__init__(profile, query, bindings, brokers=brokers, stop_on_error=stop_on_error)
        self.aggregate = handler
        self._update = Pipeline(Producer(profile, update, brokers=self._brokers), self._faults, repeat=repeat)

    async def close(self) -> None:
        """Unsubscribe after the updates in progress have ended."""
        await self._update.drain(GRACE)
        await super().close()

    async def _hand(self, notification: Notification) -> None:
        await super()._hand(notification)
        update = (
            self._update if is_coroutine(self.aggregate) else PlainPipeline(self._update, asyncio.get_running_loop())
        )
        await self._faults.guard(self.aggregate, notification, notification, update)
