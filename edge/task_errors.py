"""Removal of errors of cancelled tasks, so that the memory of a connection is freed at once.

The garbage collector runs full collections seldom (`edge.garbage`). `edge.compat` breaks the reference cycles of
libraries.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


def drop_error(task: asyncio.Task[Any]) -> None:
    """Remove the error from a cancelled task: its traceback often refers to the task.

    For `Task.add_done_callback` of tasks without a waiter. Other errors are left to asyncio, which logs them.
    """
    if task.cancelled():
        with suppress(asyncio.CancelledError):
            task.exception()
