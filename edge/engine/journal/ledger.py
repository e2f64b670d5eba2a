"""What is written down of updates beside the graph: numbered, in their commits, undone with them.

The engine does not know what it is. Who runs it gives it a ledger, and requests the notes that go into it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from edge.engine.store.changes import Statement


class Ledger(Protocol):
    """A ledger. One caller at a time, the writer; what it does is in memory until `write`."""

    graph: str
    """The IRI of a graph that is none: what updates add to it goes into the ledger, and it is always empty."""

    def take(self, notes: Sequence[object], quads: Sequence[Statement], now: int) -> int:
        """Take in what one update writes down: its notes, and the quads for the graph. `now`: microseconds since 1970.

        Returns how many entries that makes. Raises `StorageFailed`: there is no room; nothing was taken in.
        """
        ...

    def give_back(self, entries: int) -> None:
        """The last entries do not count: their update is undone."""
        ...

    @property
    def changed(self) -> bool:
        """Whether there is something to write."""
        ...

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what was taken in, in a transaction of the journal. It may fail, and be tried again."""
        ...

    def written(self) -> None:
        """What `write` wrote is committed."""
        ...

    def flushed(self) -> None:
        """All that was committed survives a power cut from now on."""
        ...
