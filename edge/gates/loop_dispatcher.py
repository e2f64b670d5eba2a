"""From the engine's thread to the event loop: many items, one wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

_BATCH = 500
"""Items handed out before other work of the loop has its turn."""


class LoopDispatcher:
    """Carries items to receivers on the event loop, in the order in which they were put.

    Waking the loop writes to a socket and costs more than a notification itself. So only the first item of a burst
    wakes it; what is put before the loop gets round to it travels along. One bridge serves all sessions of a gate: an
    update that a thousand clients are told about is one burst.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._awake = False

    def put(self, receiver: Callable[[Any], None], item: object) -> None:
        """Have `receiver(item)` called on the event loop. Callable from any thread; never blocks."""
        self._items.append((receiver, item))
        if not self._awake:
            self._awake = True
            # A closed loop means that the gate is gone and with it everybody who could be told.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared before the first item is taken: whoever puts one later sees it cleared and wakes the loop again.
        self._awake = False
        items = self._items
        for _ in range(min(len(items), _BATCH)):
            receiver, item = items.popleft()
            try:
                receiver(item)
            except Exception:  # noqa: BLE001  a fault of ours: those after it must not wait for ever
                _log.exception("bridge.fault")
        if items and not self._awake:
            self._awake = True
            self._loop.call_soon(self._deliver)
