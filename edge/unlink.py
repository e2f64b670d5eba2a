"""Break reference cycles of closed connections, so that their memory is free at once.

The garbage collector looks at long-lived objects seldom (`edge.garbage`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


class Unlink:
    """The reference cycle of a transport of asyncio: it has a bound method of its own."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        """To be made while the transport is open: one of TLS knows only then which transport it is on."""
        tls = getattr(transport, "_ssl_protocol", None)
        self._transport: Any = transport if tls is None else getattr(tls, "_transport", transport)

    def __call__(self) -> None:
        """Break it. To be called after the transport was closed.

        Nothing happens while TLS still reads the client's farewell, or with another event loop.
        """
        with suppress(AttributeError):
            if self._transport.is_closing():
                self._transport._read_ready_cb = None  # asyncio has no other way


def drop_error(task: asyncio.Task[Any]) -> None:
    """Take the error out of a task that was cancelled: the frames that it came through often refer to the task.

    For `Task.add_done_callback`, where nobody waits for the task. Other errors are left to asyncio, which logs them.
    """
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()
