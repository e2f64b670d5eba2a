"""Settings of the C library's allocator: few arenas, and return of free memory to the system.

glibc returns memory only from the end of its heaps. One small block that stays after a burst of large requests retains
all memory freed before it: 10 to 70 MB after clients have sent, or not read, for a minute.
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
"""With 8 for each core, glibc's default, a gateway grew by 2 to 5 MB after 1,000 short MQTT connections."""
_GROWTH: Final = 8 * 1024 * 1024
"""Bytes of growth after which a trim is considered, or an eighth of the process size if that is more."""
_LOOK: Final = 1.0
"""Seconds between two decisions."""
_STATUS: Final = Path("/proc/self/statm")


def configure() -> None:
    """Configure the allocator before threads start. Without glibc this has no effect.

    Its thresholds keep their defaults: with fixed ones, each large block is newly mapped memory, and filling a
    dictionary of 200,000 entries takes twice as long.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_ARENA_MAX, _ARENAS)


def resident() -> int:
    """Return the resident bytes of the process, or 0 if not known."""
    try:
        return int(_STATUS.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def trim() -> None:
    """Return free memory to the system. It takes 10 to 50 ms with heaps of 300 MB; other threads continue."""
    malloc_trim = _function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


class Trimming:
    """Decides when to trim: after the start, and after the process has grown. Used on the event loop."""

    def __init__(self, size: Callable[[], int] = resident, trim: Callable[[], None] = trim) -> None:
        """`size`: returns the resident bytes of the process."""
        self._size = size
        self._trim = trim
        self._least = size()

    def is_due(self) -> bool:
        """Return whether much memory may be free."""
        size = self._size()
        self._least = min(self._least, size)
        return size - self._least >= max(_GROWTH, self._least // 8)

    def give_back(self) -> None:
        """Return free memory to the system."""
        self._trim()
        self._least = self._size()

    async def watch(self) -> None:
        """Trim, then decide once a second, forever."""
        await asyncio.to_thread(self.give_back)  # the restore of a journal leaves free memory
        while True:
            await asyncio.sleep(_LOOK)
            if self.is_due():
                await asyncio.to_thread(self.give_back)


@functools.cache  # a library object refers to itself: each new one would stay until the next garbage collection
def _function(name: str) -> Any:  # noqa: ANN401 - a function of C, or None
    return getattr(ctypes.CDLL(None), name, None)
