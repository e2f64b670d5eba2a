"""Updates that are not waited for one by one: many under way, in order, never more than fit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Final

from edge.client.answers import Scheduled, Updated
from edge.client.handlers import Faults
from edge.client.producer import Producer
from edge.jsap import Value

Outcome = Updated | Scheduled

_WINDOW: Final = 100
"""Updates under way."""


class Pipeline:
    """What the handler of an aggregator updates with. `repeat` is what its calls have that say nothing else."""

    def __init__(self, producer: Producer, faults: Faults, *, repeat: bool = False) -> None:
        self._producer = producer
        self._repeat = repeat
        self._faults = faults
        self._room = asyncio.Semaphore(_WINDOW)
        self._under_way: set[asyncio.Task[Outcome]] = set()

    async def __call__(
        self,
        bindings: Mapping[str, Value] | None = None,
        /,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the protocol's name
        repeat: bool | None = None,
        **more: Value,
    ) -> asyncio.Task[Outcome]:
        """Send the update with these values. Returns as soon as it is on its way, waiting for room if there is none.

        Await what it returns for the outcome. Nobody need: failures are logged, and end the application if it has
        `stop_on_error`. `repeat` is that of `Client.update`. Variables named like a parameter go into `bindings`.
        Raises `BindingError`.
        """
        repeat = self._repeat if repeat is None else repeat
        values = {**(bindings or {}), **more}
        text = self._producer.entry.text(values)
        await self._room.acquire()
        task = asyncio.create_task(self._producer.send(text, delay, at, id, repeat=repeat))
        self._under_way.add(task)
        task.add_done_callback(lambda done: self._done(done, values))
        return task

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - not of one thing
        """Wait for what is under way, at most `timeout` seconds; give up the rest."""
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=timeout)
            for task in late:
                task.cancel()

    def _done(self, task: asyncio.Task[Outcome], values: Mapping[str, Value]) -> None:
        self._room.release()
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)  # noqa: S101 - others end the loop
            self._faults.note(error, self._producer.entry.name, values)


class PlainPipeline:
    """The same for a handler that is a plain function, on its thread."""

    def __init__(self, pipeline: Pipeline, loop: asyncio.AbstractEventLoop) -> None:
        self._pipeline = pipeline
        self._loop = loop

    def __call__(
        self,
        bindings: Mapping[str, Value] | None = None,
        /,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: str | None = None,  # noqa: A002 - the protocol's name
        repeat: bool | None = None,
        **more: Value,
    ) -> Future[Outcome]:
        """As `Pipeline`; `result()` of what it returns waits for the outcome."""
        sending = self._pipeline(bindings, delay=delay, at=at, id=id, repeat=repeat, **more)
        task = asyncio.run_coroutine_threadsafe(sending, self._loop).result()
        return asyncio.run_coroutine_threadsafe(_outcome(task), self._loop)


async def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    return await asyncio.shield(task)
