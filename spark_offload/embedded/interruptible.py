"""Calls of DuckDB in a thread, which SIGINT or a time limit can end: a call in the main thread would defer signals."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

_GRACE: Final = 2.0
"""Time in seconds for an interrupted call to end. DuckDB does not look at interrupts in all phases of planning."""

Result = TypeVar("Result")


def interruptible(call: Callable[[], Result], interrupt: Callable[[], None], limit: float | None = None) -> Result:
    """Return the result of a call, or raise its error.

    `interrupt` ends the call early: after `limit` seconds, which raises `TimeoutError`, or if the waiting thread is
    interrupted. A call that does not end in spite of this is left to itself.
    """
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again by the waiting thread
            # Objects of pyoxigraph in these frames must end in this thread.
            traceback.clear_frames(error.__traceback__)
            result.set_exception(error)

    thread = threading.Thread(target=run, name="DuckDB", daemon=True)
    thread.start()
    try:
        return result.result(limit)
    finally:
        if not result.done():
            interrupt()
            thread.join(_GRACE)
