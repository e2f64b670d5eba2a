"""When Python looks for garbage in reference cycles: seldom, and in all objects only where that may find something.

A collection of all objects stops every thread for about a second per 3 million objects. Python starts one whenever a
quarter more objects exist. A graph or 10,000 subscriptions that grow hold no garbage, so each such stop was for
nothing. Closed connections and answered requests are free without it (`edge.unlink`). A connection may still leave
long-lived cycles behind where a library has them. So all objects are looked at when the connections since the last
time can explain half of the growth, and once in an hour. Young objects are looked at as usual, which takes some
milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Final

_YOUNG: Final = 2_000
"""Objects made, and not freed, until the garbage collector looks at the young ones; Python's own figure is 700."""
_OLDER: Final = 3
"""Such looks until it looks at those that survived one; Python's own figure is 10. So a look is at 8,000 objects at
most, as with Python's own figures: with 20,000 it stopped all threads for 5 to 20 ms."""
_NEVER: Final = 1_000_000_000
"""Such looks until it looks at all objects by itself."""

_PER_CONNECTION: Final = 150
"""Blocks of memory that a closed connection leaves in cycles at most."""
_INTERVAL: Final = 3600.0
"""Seconds after which all objects are looked at in any case."""
_LOOK: Final = 1.0
"""Seconds between two decisions."""


class Cycles:
    """Decides when all objects are looked at. It belongs to the event loop."""

    def __init__(
        self,
        collect: Callable[[], object] = gc.collect,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`blocks`: how many blocks of memory are in use. `clock`: in seconds."""
        self._collect = collect
        self._blocks = blocks
        self._clock = clock
        self._connections = 0
        self._base = 0
        self._next = 0.0

    def begin(self) -> None:
        """Look at all objects, never again at those of the start, and take the decisions from now on."""
        self._collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, _OLDER, _NEVER)
        self._note()

    def connected(self) -> None:
        """Note a connection, which will leave a cycle behind."""
        self._connections += 1

    def look(self) -> bool:
        """Look at all objects if that may be worth it. Returns whether it was done."""
        growth = self._blocks() - self._base
        explained = 2 * _PER_CONNECTION * self._connections >= growth > self._base // 4
        if not explained and self._clock() < self._next:
            return False
        self._collect()
        self._note()
        return True

    async def watch(self) -> None:
        """Decide once a second."""
        while True:
            await asyncio.sleep(_LOOK)
            self.look()

    def _note(self) -> None:
        self._connections = 0
        self._base = self._blocks()
        self._next = self._clock() + _INTERVAL


cycles: Final = Cycles()
"""Of this process: there is one garbage collector."""
