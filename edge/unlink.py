"""Breaking of reference cycles of closed connections, so that their memory is freed at once.

The garbage collector runs full collections seldom (`edge.garbage`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


class Unlink:
    """Reference cycle of an asyncio transport, which stores a bound method of itself."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        """Create it while the transport is open: only then a TLS transport knows its underlying one."""
        tls = getattr(transport, "_ssl_protocol", None)
        self._transport: Any = transport if tls is None else getattr(tls, "_transport", transport)

    def __call__(self) -> None:
        """Break the cycle. Call it after the transport was closed.

        There is no effect while TLS still waits for the client's closing message, or with another event loop.
        """
        with suppress(AttributeError):
            if self._transport.is_closing():
                self._transport._read_ready_cb = None  # asyncio offers no other way


def drop_error(task: asyncio.Task[Any]) -> None:
    """Remove the error from a cancelled task: its traceback often refers to the task.

    For `Task.add_done_callback` of tasks without a waiter. Other errors are left to asyncio, which logs them.
    """
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()
