"""An agent that updates: it puts values into one update of a profile and sends it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import overload

from edge.client.answers import Scheduled, Updated
from edge.client.brokers import Agent, Brokers
from edge.jsap import Profile, Value


class Producer(Agent):
    """Use it with `async with` (an application's producers need not be). Raises `UnknownEntry`.

    What it is asked for raises `BindingError`, before anything is sent, and what `Client.update` raises.
    """

    def __init__(self, profile: Profile, name: str, *, brokers: Brokers | None = None) -> None:
        super().__init__(brokers)
        self.entry = profile.update(name)
        self._client = self._brokers.client(self.entry)

    async def produce(self, *, repeat: bool = False, **bindings: Value) -> Updated:
        """Send the update with these values, by name of variable. `repeat` as `Client.update` has it."""
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
        """Send the update with these values; carried out after `delay`, or `at` a time, as `Client.update` has it."""
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
        """Send a text that the entry gave."""
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
