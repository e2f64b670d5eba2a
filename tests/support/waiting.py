"""Wait for a condition in a thread or in a coroutine."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

PATIENCE = 60.0
"""Seconds after which a test gives up.

A loaded machine can delay a process by many seconds, and no test is about such a delay. The limit of pytest-timeout is
twice as long, so that a failure names the condition.
"""

T = TypeVar("T")


def _pauses() -> Iterator[float]:
    """Seconds between two checks: short at first, and longer so that a long wait costs little processor time."""
    pause = 0.001
    while True:
        yield pause
        pause = min(1.5 * pause, 0.02)


def wait_for(condition: Callable[[], T], what: str = "", *, seconds: float = PATIENCE) -> T:
    """Return the first true value of a condition. Raises AssertionError with `what` if there is none in time."""
    deadline = time.monotonic() + seconds
    for pause in _pauses():
        if value := condition():
            return value
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
    raise AssertionError(f"waited {seconds:g} s in vain for {what or condition}")


async def eventually(condition: Callable[[], Any], what: str = "", *, seconds: float = PATIENCE) -> Any:
    """Do the same without blocking the event loop. The condition may be a coroutine function."""
    deadline = time.monotonic() + seconds
    for pause in _pauses():
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(pause)
    raise AssertionError(f"waited {seconds:g} s in vain for {what or condition}")
