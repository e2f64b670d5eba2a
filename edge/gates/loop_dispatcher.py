"""Dispatcher from engine threads to the event loop, with one wake-up for many items."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from edge.engine.wakeups import wake

_log = logging.getLogger(__name__)

_BATCH = 500
"""Maximum number of items per iteration of the event loop, so that other tasks can run."""


class LoopDispatcher:
    """Passes items to receivers on the event loop, in the order of `put`.

    Waking the loop writes to a socket, which costs more than a notification. Therefore only the first item of a burst
    wakes it; items put before the loop runs are delivered with it. All sessions of a gate share one dispatcher, so an
    update that notifies a thousand clients is one burst.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._awake = False
        self._delivering = False
        self._afterwards: list[Callable[[], object]] = []

    def put(self, receiver: Callable[[Any], None], item: object) -> None:
        """Call `receiver(item)` on the event loop. Thread-safe; never blocks."""
        self._items.append((receiver, item))
        if not self._awake:
            if len(self._items) < _BATCH:
                wake(self._wake)
            else:
                self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._items.clear()  # the loop is closed: the gate has stopped, with all its clients

    def afterwards(self, call: Callable[[], object]) -> None:
        """Call a function after the items that are being delivered, or soon if there are none.

        To be called on the event loop. Receivers of several items use it for work that they do once for all of them.
        """
        if not self._delivering and not self._afterwards:
            self._loop.call_soon(self._end_turn)
        self._afterwards.append(call)

    def _end_turn(self) -> None:
        calls, self._afterwards = self._afterwards, []
        for call in calls:
            _attempt(call)

    def _deliver(self) -> None:
        # Cleared before the first item is taken: a later `put` then wakes the loop again.
        self._awake = False
        items = self._items
        self._delivering = True
        try:
            for _ in range(min(len(items), _BATCH)):
                receiver, item = items.popleft()
                try:
                    receiver(item)
                except Exception:  # noqa: BLE001  a defect in one receiver must not block the items after it
                    _log.exception("bridge.fault")
        finally:
            self._delivering = False
        self._end_turn()
        if items and not self._awake:
            self._awake = True
            self._loop.call_soon(self._deliver)


def _attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001  as for receivers
        _log.exception("bridge.fault")
