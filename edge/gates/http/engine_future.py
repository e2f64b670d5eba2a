"""Futures of the engine, awaited on the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from edge.protocol.errors import NotReady

T = TypeVar("T")


async def result(future: Future[T], *, shield: bool = False) -> T:
    """Wait for the engine. Raises `NotReady` if the engine cancelled the request because it is stopping."""
    waiting = asyncio.wrap_future(future)
    try:
        if not shield:
            return await waiting
        waiting.add_done_callback(_retrieve_exception)
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if future.cancelled() and not (task and task.cancelling()):
            raise not_ready() from None
        raise


async def shielded(future: Future[T]) -> T:
    """Wait for the engine, but leave the request in its queue if the client disconnects."""
    return await result(future, shield=True)


def _retrieve_exception(future: asyncio.Future[T]) -> None:
    """Retrieve the exception: with the client gone nobody else does, and asyncio would log it."""
    if not future.cancelled():
        future.exception()


def not_ready() -> NotReady:
    """Return the error for requests while the engine does not run."""
    return NotReady("The gateway is starting or stopping; try again in a few seconds")
