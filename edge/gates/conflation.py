"""Notifications of one subscription merged into one: what they come to together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from edge.engine.requests import PIECE, Delta, Notification
from edge.engine.store.terms import size
from edge.protocol.results import Row

_ROW: Final = 200
"""Bytes that a row takes beside its terms, with its place in a dictionary."""
_NOTIFICATION: Final = 300
"""Bytes that a notification takes beside its rows and their JSON."""
_CELL: Final = 100
"""Bytes that a term takes beside its characters."""


class MergedDelta:
    """A notification, and those after it as they come.

    A row that was added and removed again is neither. So this never holds more than the result before and the result
    after, however many notifications it takes in.
    """

    __slots__ = ("_counts", "_last", "_merged", "_rows", "_single", "length", "since")

    def __init__(self, first: Notification, since: float = 0.0) -> None:
        """`since`: when it came, by the clock of who asks."""
        self.since = since
        self._last = first
        self._merged = first.merged
        self.length = first.delta.length
        """Characters of the results of the first one."""
        self._single = _NOTIFICATION + self.length + size_of(first.delta) // 2
        """Bytes of the first one: its JSON and its rows, which take half of what they take in a dictionary."""
        self._counts: dict[Row, int] | None = None
        self._rows: int | None = None
        """Bytes of the rows that are left; None: it is only one notification."""

    def settle(self) -> Notification:
        """All of it as one notification, and kept as that until the next one comes: its JSON can be written before."""
        self._last, self._counts = self.notification(), None
        return self._last

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return self._single if self._rows is None else self._rows

    @property
    def spuid(self) -> str:
        """The subscription."""
        return self._last.spuid

    @property
    def sequence(self) -> int:
        """That of the last one taken in."""
        return self._last.sequence

    def add(self, later: Notification) -> None:
        """Take in the next notification."""
        if self._counts is None:
            self._counts, self._rows = {}, 0
            self._count(self._last.delta)
        self._count(later.delta)
        self._merged += later.merged
        known = self._last
        self._last = Notification(known.spuid, known.alias, later.sequence, Delta(known.delta.variables, (), ()))

    def notification(self) -> Notification:
        """All of it as one: with the sequence of the last, and how many they are. A single one is itself."""
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
    """Bytes of memory that the rows of a delta take, about: of many rows, the first ones are measured.

    They are counted once for all who have the delta.
    """
    if delta.row_bytes is None:
        delta.row_bytes = sum([_bytes_of(rows) for rows in (delta.added, delta.removed)])
    return delta.row_bytes


def _bytes_of(rows: Sequence[Row]) -> int:
    measured = sum(map(_bytes, rows[:PIECE]))
    return measured if len(rows) <= PIECE else measured * len(rows) // PIECE


def _bytes(row: Row) -> int:
    """Bytes of memory that a row takes, about."""
    return _ROW + sum([_CELL + size(cell) for cell in row if cell is not None])


def _rows(counted: Iterable[tuple[Row, int]]) -> Iterable[Row]:
    for row, count in counted:
        for _ in range(count):
            yield row
