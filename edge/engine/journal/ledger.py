"""Ledger: numbered records of updates in addition to the graph, committed and undone together with them.

The engine does not interpret the records. Its owner provides the ledger, and requests contain the notes for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from edge.engine.store.changes import Statement


class Ledger(Protocol):
    """A ledger. Only the writer calls it. Its changes are in memory until `write`."""

    graph: str
    """IRI that stands for the ledger. Quads added to this graph go to the ledger, and the graph is always empty."""

    def take(self, notes: Sequence[object], quads: Sequence[Statement], now: int) -> int:
        """Take the records of one update: its notes, and the quads for the graph. `now`: microseconds since 1970.

        Returns the number of new entries. Raises `StorageFailed`, and takes nothing, if the disk is full.
        """
        ...

    def give_back(self, entries: int) -> None:
        """Remove the last entries, because their update is undone."""
        ...

    @property
    def changed(self) -> bool:
        """Whether there are entries to write."""
        ...

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the new entries in a transaction of the journal. It may fail, and is then called again."""
        ...

    def written(self) -> None:
        """Note that the written entries are committed."""
        ...

    def begin_flush(self) -> None:
        """Note that a flush begins, which includes everything committed so far."""
        ...

    def flushed(self) -> None:
        """Note that the last begun flush has succeeded: what it includes survives a power cut."""
        ...
