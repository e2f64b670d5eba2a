"""Writer-side part of the outbox: numbers observations without gaps, in the commits of their updates.

The recorder numbers the observations of an update when the engine executes it, and writes them in the same commit. If
the update is rolled back, the recorder releases the numbers. When the outbox is full, the recorder either drops the
oldest observations and records their range, or refuses the update. Only one thread may call it at a time.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from edge.engine.journal.journal import Journal
from edge.engine.store.changes import Statement
from edge.outbox import sqlite_tables
from edge.outbox.observation import EPOCH_LENGTH, Cells, ObservationContext
from edge.outbox.row_encoding import observations
from edge.outbox.segment import body
from edge.outbox.settings import OutboxSettings
from edge.outbox.sqlite_tables import Head, Lost, Row
from edge.protocol.errors import StorageFailed

_SPARE: Final = 128
"""Fraction of the cap that is dropped at once: 1/128 keeps the list of lost ranges short and each commit fast."""

_MAX_CONTEXTS: Final = 4096
"""Number of contexts above which unused contexts are deleted."""


class _Dropped(NamedTuple):
    """Observations that a commit drops if it succeeds."""

    rows: int
    size: int


class Recorder:
    """Outbox operations of the engine's writer thread. The counters may be read from any thread."""

    def __init__(self, journal: Journal, settings: OutboxSettings) -> None:
        """Load the state of the outbox without reading each row. Raises `DataDirectoryRefused` if it is damaged."""
        self.graph = settings.graph
        self._journal = journal
        self._max_bytes = settings.max_bytes
        self._refuses = settings.when_full == "refuse"
        self._new_rows: list[Row] = []
        self._new_contexts: dict[int, ObservationContext] = {}
        self._dropped: _Dropped | None = None
        self.count = 0
        """Number of observations that are not acknowledged."""
        self.bytes = 0
        """Size of their bodies in bytes."""
        self._last_use: dict[int, int] = {}
        try:
            self._load(settings.gateway)
        except sqlite_tables.DamagedDatabase as damaged:
            journal.refuse(str(damaged))

    def _load(self, gateway: str) -> None:
        """Read the stored state and check that its numbers have no gaps. Raises `DamagedDatabase`."""
        select = self._journal.select
        head = sqlite_tables.read_head(select)
        self._head_stored = head is not None and gateway in ("", head.gateway)
        if head is None:
            head = Head(gateway or f"edge-{secrets.token_hex(4)}", _new_epoch())
        self.head = head._replace(gateway=gateway or head.gateway)
        last = self.head.acknowledged
        for lost in sqlite_tables.read_lost(select):
            last = self._after(last, lost.first, lost.last)
        self.count, self.bytes, first, end = sqlite_tables.extent(select, last)
        if self.count:
            last = self._after(last, first, end)
        contexts = dict(sqlite_tables.read_contexts(select))
        # Finding the last use of each context would require a scan of all rows. The newest number is a safe upper
        # bound.
        self._last_use = dict.fromkeys(contexts, last)
        self._contexts = {context: number for number, context in contexts.items()}
        self._last_context = max(contexts, default=0)
        self.last = self.safe = self._in_flush = last

    @staticmethod
    def _after(last: int, first: int, end: int) -> int:
        if first != last + 1:
            raise sqlite_tables.DamagedDatabase(f"the stored observation {last + 1} is missing")
        return end

    @property
    def oldest(self) -> int:
        """Number of the oldest stored observation; if nothing is stored, the next number."""
        return self.last + 1 - self.count

    def take(self, notes: Sequence[object], quads: Sequence[Statement], now: int) -> int:
        """Number the observations of an update, and return their number.

        Notes begin with `ObservationContext` and `Cells`. Raises `StorageFailed`.
        """
        found = [(note[0], note[1]) for note in cast("Sequence[tuple[ObservationContext, Cells]]", notes)]
        if quads:
            found += observations(quads, self.graph, f"{self.head.epoch}:{self.last + 1}", now)
        # All bodies and their size first: a refused update must not take numbers.
        bodies = [body(cells) for _, cells in found]
        size = sum(len(text.encode()) for text in bodies)
        # With `when_full = "drop-oldest"` nothing is refused here; `write` drops the oldest observations instead.
        if self._refuses and self.bytes + size > self._max_bytes:
            raise StorageFailed(
                f"The outbox is full (outbox.max_bytes is {self._max_bytes}): {self.count} observations wait to be sent"
                " to the history. See why they are not acknowledged (edge outbox status); then send the update again."
            )
        for (context, _), text in zip(found, bodies, strict=True):
            self.last += 1
            self._new_rows.append((self.last, self._number(context), text))
        self.count += len(bodies)
        self.bytes += size
        return len(bodies)

    def _number(self, context: ObservationContext) -> int:
        number = self._contexts.get(context)
        if number is None:
            self._last_context = number = self._last_context + 1
            self._contexts[context] = number
            self._new_contexts[number] = context
        self._last_use[number] = self.last
        return number

    def give_back(self, entries: int) -> None:
        """Release the last `entries` numbers: their observations are not stored after all."""
        if entries:
            # Numbers are given back from the end, in the reverse order of `take`, so they stay without gaps.
            released = self._new_rows[-entries:]
            del self._new_rows[-entries:]
            self.last -= entries
            self.count -= entries
            self.bytes -= sum(len(text.encode()) for _, _, text in released)

    @property
    def changed(self) -> bool:
        """Whether there are observations to write."""
        return bool(self._new_rows)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the new observations, and drop the oldest ones if the outbox is over its size limit."""
        if not self._head_stored:
            sqlite_tables.write_head(connection, self.head)
        sqlite_tables.add_contexts(connection, self._new_contexts.items())
        sqlite_tables.add_rows(connection, self._new_rows)
        self._dropped = self._drop_oldest(connection) if self.bytes > self._max_bytes else None

    def _drop_oldest(self, connection: sqlite3.Connection) -> _Dropped | None:
        """Drop the oldest observations of earlier commits, and record their range and time span."""
        # Drop more than necessary: else each following commit would drop again, and add a lost range.
        surplus = self.bytes - self._max_bytes + self._max_bytes // _SPARE
        seqs: list[int] = []
        times: list[int] = []
        size = 0
        # Rows of this commit are never dropped: only numbers below the first new one are candidates.
        for seq, _, text in sqlite_tables.read_rows(connection.execute, self.oldest, self._new_rows[0][0] - 1):
            seqs.append(seq)
            size += len(text.encode())
            times.append(int(text.partition("\t")[0]))
            if size >= surplus:
                break
        if not seqs:
            return None
        sqlite_tables.remove(connection, seqs[-1])
        sqlite_tables.add_lost(connection, Lost(seqs[0], seqs[-1], min(times), max(times), "the outbox was full"))
        return _Dropped(len(seqs), size)

    def written(self) -> None:
        """Mark the new observations as stored. The journal calls this after a successful commit."""
        if self._dropped is not None:
            self.count -= self._dropped.rows
            self.bytes -= self._dropped.size
            self._dropped = None
        self._new_rows.clear()
        self._new_contexts.clear()
        self._head_stored = True
        # Each commit is synced then. With an interval, `flushed` is called after the next sync.
        if self._journal.flush_interval is None:
            self.safe = self.last

    def begin_flush(self) -> None:
        """Note that a flush begins, which includes all stored observations."""
        self._in_flush = self.last

    def flushed(self) -> None:
        """Mark the observations of the last begun flush as flushed to disk. They may now be sent: their numbers cannot
        be assigned again.
        """
        self.safe = self._in_flush

    def claim(self, last: int) -> None:
        """Record on disk that numbers up to `last` may be sent. Raises `StorageFailed`: then they must not be sent."""
        # One write for a whole segment: an interrupted transfer claims the same numbers again.
        if last > self.head.claimed:
            self._put_head(self.head._replace(claimed=last))

    def begin_epoch(self) -> None:
        """Renumber all waiting observations from 1 in a new epoch. Raises `StorageFailed`.

        Used when the old numbers have already been assigned to other observations, for example after a restore.
        """
        offset = self.head.acknowledged
        # The new head has acknowledged and claimed 0: the numbers start from 1.
        head = Head(self.head.gateway, _new_epoch())
        self._put_head(head, lambda connection: sqlite_tables.renumber(connection, offset))
        self.last -= offset
        self.safe -= offset
        self._in_flush -= offset
        self._last_use = {number: max(0, use - offset) for number, use in self._last_use.items()}

    def _put_head(self, head: Head, also: Callable[[sqlite3.Connection], None] = lambda _: None) -> None:
        def update_rows_and_head(connection: sqlite3.Connection) -> None:
            also(connection)
            sqlite_tables.write_head(connection, head)

        # If the commit fails it raises, and the head in memory stays that of the disk.
        self._journal.commit([], update_rows_and_head)
        self.head = head
        self._head_stored = True

    def forget(self, last: int) -> None:
        """Delete the observations up to `last`, which are acknowledged. Raises `StorageFailed`: then they stay."""
        # A power cut may give later numbers to other observations, so their acknowledgement must not delete anything.
        last = min(last, self.safe)
        if last <= self.head.acknowledged:
            return
        unused = [number for number, use in self._last_use.items() if use <= last]
        # Contexts recur with the next reading of the same sensor, so they stay until there are many.
        if len(self._contexts) <= _MAX_CONTEXTS:
            unused = []
        count = size = 0

        def delete_acknowledged(connection: sqlite3.Connection) -> None:
            nonlocal count, size
            count, size = sqlite_tables.remove(connection, last)
            sqlite_tables.remove_lost(connection, last)
            sqlite_tables.remove_contexts(connection, unused)

        self._put_head(self.head._replace(acknowledged=last), delete_acknowledged)
        self.count -= count
        self.bytes -= size
        for number in unused:
            del self._last_use[number]
            self._new_contexts.pop(number, None)
        if unused:
            gone = set(unused)
            self._contexts = {context: number for context, number in self._contexts.items() if number not in gone}


def _new_epoch() -> str:
    return secrets.token_hex(EPOCH_LENGTH // 2)
