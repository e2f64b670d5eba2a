"""Calling the application's code: where it runs, and what becomes of its exceptions."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from edge.client.errors import ClientError

GRACE: Final = 5.0
"""Seconds at the end for what is under way: a plain handler, updates."""

Handler = Callable[..., Awaitable[object] | object]
"""A coroutine function runs on the event loop; a plain function on a worker thread, so that it may wait."""

_log = logging.getLogger("edge.client")


async def call(handler: Handler, *arguments: Any) -> None:  # noqa: ANN401 - the handler's own
    """Call it, wait for it."""
    if is_coroutine(handler):
        await handler(*arguments)  # type: ignore[misc]  # it is one that gives an awaitable
    else:
        await _in_thread(handler, *arguments)


def is_coroutine(handler: Handler) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def report(error: Exception, name: str, subject: object) -> None:
    """Log what failed at what. An error of the client says all in one line; one of the application has a traceback."""
    at = ", ".join(f"{key}={value}" for key, value in subject.items()) if isinstance(subject, Mapping) else subject
    if isinstance(error, ClientError):
        _log.error("%s failed at %.1000s: %s", name, at, " ".join(str(error).split()))
    else:
        _log.error("%s failed at %.1000s", name, at, exc_info=error)


async def _in_thread(handler: Handler, *arguments: Any) -> None:  # noqa: ANN401
    """Call a plain function on a thread of its own, wait for it; cancelled, for `GRACE` seconds more.

    No thread of a pool: the interpreter would wait for it at its end, however long it takes.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()
    context = contextvars.copy_context()

    def end(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def work() -> None:
        error: BaseException | None = None
        try:
            context.run(handler, *arguments)
        except BaseException as raised:  # noqa: BLE001 - it is the application's code, and raised where it is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # the event loop may be gone
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=work, name="edge-client-handler", daemon=True).start()
    try:
        error = await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait({ended}, timeout=GRACE)
        raise
    if error is not None:
        raise error


class Faults:
    """What becomes of exceptions of handlers: they are logged, and with `stop` end the agent."""

    def __init__(self, *, stop: bool) -> None:
        self._stop = stop
        self._first: asyncio.Future[None] | None = None

    async def guard(self, handler: Handler, subject: object, *arguments: Any) -> None:  # noqa: ANN401
        """Call it; `subject` is what the log shows of what it was called for."""
        try:
            await call(handler, *arguments)
        except Exception as error:  # noqa: BLE001 - it is the application's code
            self.note(error, getattr(handler, "__name__", str(handler)), subject)

    def note(self, error: Exception, name: str, subject: object) -> None:
        """Take note of an exception."""
        report(error, name, subject)
        if self._stop and self._first is not None and not self._first.done():
            self._first.set_exception(error)

    async def until(self, work: Awaitable[None]) -> None:
        """Wait for `work`; with `stop`, the first exception ends it and is raised."""
        self._first = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._first}, return_when=asyncio.FIRST_COMPLETED)
            if self._first.done():
                self._first.result()
            await task
        finally:
            self._first.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
