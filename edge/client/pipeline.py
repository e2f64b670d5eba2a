"""Pipelined updates of a handler: several in progress, in order, with a bounded number."""

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
"""Most updates in progress."""


class Pipeline:
    """Sends updates for the handler of an aggregator. `repeat` is the default of its calls."""

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
        """Send the update with these values. Returns once it is sent, after a wait if too many are in progress.

        Await the returned task for the outcome; this is optional, because failures are logged, and end the application
        if it has `stop_on_error`. `repeat` is that of `Client.update`. Variables named like a parameter go into
        `bindings`. Raises `BindingError`.
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
        """Wait for updates in progress, at most `timeout` seconds; cancel the rest."""
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
        """Send the update as `Pipeline` does; `result()` of the returned future waits for the outcome."""
        # Wait until the update is sent: this keeps the order of updates, and limits those in progress.
        sending = self._pipeline(bindings, delay=delay, at=at, id=id, repeat=repeat, **more)
        task = asyncio.run_coroutine_threadsafe(sending, self._loop).result()
        return asyncio.run_coroutine_threadsafe(_outcome(task), self._loop)


async def _outcome(task: asyncio.Task[Outcome]) -> Outcome:
    return await asyncio.shield(task)  # cancelling the returned future does not cancel the update
