"""Schedule of Python's garbage collector: full collections only if they may find something.

A full collection stops every thread for about a second per 3 million objects. Python starts one whenever a quarter more
objects exist. A growing graph, or 10,000 subscriptions, hold no garbage, so each such stop was useless. The memory of
closed connections and answered requests is freed without it (`edge.task_errors`). A connection may still leave
long-lived cycles in libraries. So a full collection runs when the connections since the last one can explain half of
the growth, and once an hour. Young objects are collected as usual, which takes some milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Final

_YOUNG: Final = 1_000
"""New objects until a collection of the young generation; Python's default is 700."""
_OLDER: Final = 1
"""Such collections until one of the second generation; Python's default is 10.

It covers at most 3,000 objects. With 8,000, as with Python's defaults, it stopped all threads for 2 to 5 ms while long
texts were compiled, and with 20,000 for 5 to 20 ms. The number does not change the total work: each object is visited
by one or two collections.
"""
_NEVER: Final = 1_000_000_000
"""Such collections until Python starts a full one by itself."""

_PER_CONNECTION: Final = 150
"""Most memory blocks that a closed connection leaves in cycles."""
_INTERVAL: Final = 3600.0
"""Seconds between two full collections at most."""
_LOOK: Final = 1.0
"""Seconds between two decisions."""


class CycleCollection:
    """Decides when to run a full collection. Used on the event loop."""

    def __init__(
        self,
        collect: Callable[[], object] = gc.collect,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`blocks`: returns the number of memory blocks in use. `clock`: in seconds."""
        self._collect = collect
        self._blocks = blocks
        self._clock = clock
        self._connections = 0
        self._base = 0
        self._next = 0.0

    def hold(self) -> None:
        """Collect nothing until `begin`: the start creates many objects and hardly any garbage.

        With Python's schedule, half a second of a start with 334,000 triples went into collections that found nothing.
        """
        gc.freeze()  # the collection of `begin` need not visit the imported modules
        gc.disable()

    def begin(self) -> None:
        """Run a full collection, exclude the objects of the start from later ones, and take over the schedule."""
        self._collect()
        # The objects of the start live as long as the process. Collections do not visit frozen objects.
        gc.freeze()
        gc.set_threshold(_YOUNG, _OLDER, _NEVER)
        gc.enable()
        self._note()

    def connected(self) -> None:
        """Count a connection, which will leave a cycle."""
        self._connections += 1

    def look(self) -> bool:
        """Run a full collection if it may be useful. Returns whether it ran."""
        growth = self._blocks() - self._base
        explained = 2 * _PER_CONNECTION * self._connections >= growth > self._base // 4
        if not explained and self._clock() < self._next:
            return False
        self._collect()
        self._note()
        return True

    async def watch(self) -> None:
        """Decide once a second, forever."""
        while True:
            await asyncio.sleep(_LOOK)
            self.look()

    def _note(self) -> None:
        self._connections = 0
        self._base = self._blocks()
        self._next = self._clock() + _INTERVAL


cycle_collection: Final = CycleCollection()
"""Instance of this process: there is one garbage collector."""
