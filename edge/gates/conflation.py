"""Conflation: merges notifications of one subscription into one delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edge.engine.requests import PIECE, Delta, Notification
from edge.engine.store.terms import size
from edge.protocol.results import Row

_ROW: Final = 200
"""Estimated memory of a row in bytes, without its terms."""
_NOTIFICATION: Final = 300
"""Estimated memory of a notification in bytes, without its rows and their JSON."""
_CELL: Final = 100
"""Estimated memory of a term in bytes, without its characters."""


class MergedDelta:
    """A notification into which later ones are merged.

    A row that was added and removed again is in neither list. The size is therefore bounded by the results before and
    after, regardless of the number of merged notifications.
    """

    __slots__ = ("_counts", "_last", "_merged", "_rows", "_single", "length", "since")

    def __init__(self, first: Notification, since: float = 0.0) -> None:
        """`since`: arrival time, by the caller's clock."""
        self.since = since
        self._last = first
        self._merged = first.merged
        self.length = first.delta.length
        """Characters of the results of the first notification."""
        self._single = _NOTIFICATION + self.length + size_of(first.delta) // 2
        """Bytes of the first notification: its JSON, and its rows, which take half of their size in a dictionary."""
        self._counts: dict[Row, int] | None = None
        self._rows: int | None = None
        """Bytes of the merged rows; None: there is only one notification."""

    def settle(self) -> Notification:
        """Return the merged notification, and keep it as such until the next merge, so that its JSON can be written
        ahead.
        """
        self._last, self._counts = self.notification(), None
        return self._last

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return self._single if self._rows is None else self._rows

    @property
    def spuid(self) -> str:
        """The spuid of the subscription."""
        return self._last.spuid

    @property
    def sequence(self) -> int:
        """Sequence number of the last merged notification."""
        return self._last.sequence

    def add(self, later: Notification) -> None:
        """Merge the next notification."""
        if self._counts is None:
            self._counts, self._rows = {}, 0
            self._count(self._last.delta)
        self._count(later.delta)
        self._merged += later.merged
        known = self._last
        self._last = Notification(known.spuid, known.alias, later.sequence, Delta(known.delta.variables, (), ()))

    def notification(self) -> Notification:
        """Return the merged notification, with the last sequence number and the count. A single one is returned
        unchanged.
        """
        last, counts = self._last, self._counts
        if counts is None:
            return last
        added = tuple(_rows((row, count) for row, count in counts.items() if count > 0))
        removed = tuple(_rows((row, -count) for row, count in counts.items() if count < 0))
        return Notification(
            last.spuid, last.alias, last.sequence, Delta(last.delta.variables, added, removed), self._merged
        )

    def _count(self, delta: Delta) -> None:
        counts, size = self._counts, self._rows
        assert counts is not None  # noqa: S101
        assert size is not None  # noqa: S101
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for row in rows:
                before = counts.get(row, 0)
                count = before + sign
                if count:
                    counts[row] = count
                else:
                    del counts[row]
                if not count or not before:
                    size += _bytes(row) if count else -_bytes(row)
        self._rows = size


def size_of(delta: Delta) -> int:
    """Return the approximate memory of a delta's rows in bytes; of many rows, only the first are measured.

    The result is cached in the delta, which all its subscribers share.
    """
    if delta.row_bytes is None:
        delta.row_bytes = sum([_bytes_of(rows) for rows in (delta.added, delta.removed)])
    return delta.row_bytes


def _bytes_of(rows: Sequence[Row]) -> int:
    measured = sum(map(_bytes, rows[:PIECE]))
    return measured if len(rows) <= PIECE else measured * len(rows) // PIECE


def _bytes(row: Row) -> int:
    """Return the approximate memory of a row in bytes."""
    return _ROW + sum([_CELL + size(cell) for cell in row if cell is not None])


def _rows(counted: Iterable[tuple[Row, int]]) -> Iterable[Row]:
    for row, count in counted:
        for _ in range(count):
            yield row
