"""The allocator of the C library: few arenas, and what was freed goes back to the system.

glibc gives memory back only from the end of its heaps. One small block that stays after a burst of large requests keeps
all that was freed before it: 10 to 70 MB where clients send, or do not read, for a minute.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_ARENA_MAX: Final = -8
"""Parameter of mallopt(3)."""
_ARENAS: Final = 2
"""With 8 for each core, as glibc has it, a gateway with 1,000 MQTT clients that came and went grew by 2 to 5 MB."""
_GROWTH: Final = 8 * 1024 * 1024
"""Bytes by which the process grows until it is looked for what can go back, or an eighth of it where that is more."""
_LOOK: Final = 1.0
"""Seconds between two decisions."""
_STATUS: Final = Path("/proc/self/statm")


def configure() -> None:
    """Set the allocator up, before threads start. Nothing happens where it is not glibc's.

    Its thresholds are left as they are: with fixed ones, large blocks are new memory each time, and a dictionary of
    200,000 entries takes twice as long to fill.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)


def resident() -> int:
    """Bytes of the process that are in memory; 0 where the system does not tell."""
    try:
        return int(_STATUS.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def trim() -> None:
    """Give back what is free. It takes 10 to 50 ms where the heaps have 300 MB, and other threads go on meanwhile."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


class Trimming:
    """Decides when free memory goes back: when the process has grown. It belongs to the event loop."""

    def __init__(self, size: Callable[[], int] = resident, trim: Callable[[], None] = trim) -> None:
        """`size`: bytes of the process that are in memory."""
        self._size = size
        self._trim = trim
        self._least = size()

    def is_due(self) -> bool:
        """Whether much may be free."""
        size = self._size()
        self._least = min(self._least, size)
        return size - self._least >= max(_GROWTH, self._least // 8)

    def give_back(self) -> None:
        """Give back what is free."""
        self._trim()
        self._least = self._size()

    async def watch(self) -> None:
        """Decide once a second."""
        while True:
            await asyncio.sleep(_LOOK)
            if self.is_due():
                await asyncio.to_thread(self.give_back)


@functools.cache  # a library that is loaded again refers to itself: each would stay until the garbage collector comes
def _function(name: str) -> Any:  # noqa: ANN401 - a function of C, or None
    return getattr(ctypes.CDLL(None), name, None)
