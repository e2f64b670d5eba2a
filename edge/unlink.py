"""Break reference cycles of closed connections, so that their memory is free at once.

The garbage collector looks at long-lived objects seldom (`edge.garbage`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


def unlink_transport(transport: asyncio.BaseTransport) -> None:
    """Break the reference cycle of a transport that is closed: it has a bound method of its own.

    To be called after `close`. Nothing happens to transports of TLS, or of another event loop.
    """
    with suppress(AttributeError):
        transport._read_ready_cb = None  # type: ignore[attr-defined]  # asyncio has no other way


def drop_error(task: asyncio.Task[Any]) -> None:
    """Take the error out of a task that was cancelled: the frames that it came through often refer to the task.

    For `Task.add_done_callback`, where nobody waits for the task. Other errors are left to asyncio, which logs them.
    """
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()
