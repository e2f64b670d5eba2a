"""Calls of application handlers: their threads and their exceptions."""

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
"""Seconds at the end for running plain handlers and updates in progress."""

Handler = Callable[..., Awaitable[object] | object]
"""A coroutine function runs on the event loop; a plain function runs on a worker thread, so it may block."""

_log = logging.getLogger("edge.client")


async def call(handler: Handler, *arguments: Any) -> None:  # noqa: ANN401 - the handler's own
    """Call a handler and wait for it."""
    if is_coroutine(handler):
        await handler(*arguments)  # type: ignore[misc]  # it is one that gives an awaitable
    else:
        await _in_thread(handler, *arguments)


def is_coroutine(handler: Handler) -> bool:
    """Return whether it is a coroutine function, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def report(error: Exception, name: str, subject: object) -> None:
    """Log the failure of a handler. A client error takes one line; an application error has a traceback."""
    at = ", ".join(f"{key}={value}" for key, value in subject.items()) if isinstance(subject, Mapping) else subject
    if isinstance(error, ClientError):
        _log.error("%s failed at %.1000s: %s", name, at, " ".join(str(error).split()))
    else:
        _log.error("%s failed at %.1000s", name, at, exc_info=error)


async def _in_thread(handler: Handler, *arguments: Any) -> None:  # noqa: ANN401
    """Call a plain function on its own thread and wait for it; if cancelled, for `GRACE` seconds more.

    Not a pool thread: at its end the interpreter would wait for such a thread without a limit.
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
        with contextlib.suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=work, name="edge-client-handler", daemon=True).start()
    # A thread cannot be cancelled. Without the shield, a cancellation would also cancel `ended`, and with it the wait.
    try:
        error = await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait({ended}, timeout=GRACE)
        raise
    if error is not None:
        raise error


class Faults:
    """Handling of handler exceptions: log them, and with `stop` end the agent."""

    def __init__(self, *, stop: bool) -> None:
        self._stop = stop
        self._first: asyncio.Future[None] | None = None

    async def guard(self, handler: Handler, subject: object, *arguments: Any) -> None:  # noqa: ANN401
        """Call the handler and log its exception; `subject` describes the cause of the call."""
        try:
            await call(handler, *arguments)
        except Exception as error:  # noqa: BLE001 - it is the application's code
            self.note(error, getattr(handler, "__name__", str(handler)), subject)

    def note(self, error: Exception, name: str, subject: object) -> None:
        """Record an exception."""
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
