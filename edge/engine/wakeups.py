"""Wake-ups of event loops, postponed until the writer has handed over all notifications of a commit.

A wake-up writes to a socket. Then both threads want the interpreter lock, so an early wake-up delays the rest of the
hand-over. Without it, a reading causes one context switch in ten less.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Postponed(threading.local):
    calls: dict[Callable[[], None], None] | None = None
    """Wake-ups that wait for the end of `together`; None: wake-ups happen at once."""


_postponed = _Postponed()


def wake(call: Callable[[], None]) -> None:
    """Make a wake-up: now, or once at the end of `together` if this thread is in it."""
    calls = _postponed.calls
    if calls is None:
        call()
    else:
        calls[call] = None


class together:  # noqa: N801  used like a function
    """Postpone the wake-ups of this thread until the end of the outermost context, and make each of them once."""

    __slots__ = ("_outer",)

    def __enter__(self) -> None:
        self._outer = _postponed.calls
        if self._outer is None:
            _postponed.calls = {}

    def __exit__(self, *_: object) -> None:
        if self._outer is None:
            calls, _postponed.calls = _postponed.calls, None
            for call in calls or ():
                call()
