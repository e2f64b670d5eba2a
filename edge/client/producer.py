"""Producer (SEPA paper): puts values into one update of a profile and sends it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import overload

from edge.client.answers import Scheduled, Updated
from edge.client.brokers import Agent, Brokers
from edge.jsap import Profile, Value


class Producer(Agent):
    """Producer of one update. Use it with `async with`, except those of an application. Raises `UnknownEntry`.

    Its methods raise `BindingError` before anything is sent, and the exceptions of `Client.update`.
    """

    def __init__(self, profile: Profile, name: str, *, brokers: Brokers | None = None) -> None:
        super().__init__(brokers)
        self.entry = profile.update(name)
        self._client = self._brokers.client(self.entry)

    async def produce(self, *, repeat: bool = False, **bindings: Value) -> Updated:
        """Send the update with these values, by name of variable. `repeat` as in `Client.update`."""
        return await self.update(bindings, repeat=repeat)

    @overload
    async def update(self, bindings: Mapping[str, Value], *, repeat: bool = ...) -> Updated: ...
    @overload
    async def update(
        self,
        bindings: Mapping[str, Value],
        *,
        delay: timedelta | None = ...,
        at: datetime | None = ...,
        id: str | None = ...,
        repeat: bool = ...,
    ) -> Updated | Scheduled: ...
    async def update(
        self,
        bindings: Mapping[str, Value],
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the protocol's name
        repeat: bool = False,
    ) -> Updated | Scheduled:
        """Send the update with these values. `delay`, `at`, `id` and `repeat` as in `Client.update`."""
        return await self.send(self.entry.text(bindings), delay, at, id, repeat=repeat)

    async def send(
        self,
        text: str,
        delay: timedelta | None,
        at: datetime | None,
        id: str | None,  # noqa: A002 - the protocol's name
        *,
        repeat: bool = False,
    ) -> Updated | Scheduled:
        """Send a text of the entry."""
        graphs = self.entry.graphs
        return await self._client.update(
            text,
            delay=delay,
            at=at,
            id=id,
            using=graphs.default,
            using_named=graphs.named,
            repeat=repeat,
        )
