"""Conflation: merges notifications of one subscription into one delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.engine.requests import PIECE, Delta, SubscriberNotification
from edge.engine.store.terms import size
from edge.protocol.bag import Bag
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

    __slots__ = ("_change", "_last", "_merged", "_rows", "_single", "length", "since")

    def __init__(self, first: SubscriberNotification, since: float = 0.0) -> None:
        """`since`: arrival time, by the caller's clock."""
        self.since = since
        self._last = first
        self._merged = first.merged
        self.length = first.delta.length
        """Characters of the results of the first notification."""
        self._single = _NOTIFICATION + self.length + size_of(first.delta) // 2
        """Bytes of the first notification: its JSON, and its rows, which take half of their size in a dictionary."""
        self._change: Bag[Row] | None = None
        self._rows: int | None = None
        """Bytes of the merged rows; None: there is only one notification."""

    def settle(self) -> SubscriberNotification:
        """Return the merged notification, and keep it as such until the next merge, so that its JSON can be written
        ahead.
        """
        self._last, self._change = self.notification(), None
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

    def add(self, later: SubscriberNotification) -> None:
        """Merge the next notification."""
        if self._change is None:
            self._change, self._rows = Bag(), 0
            self._count(self._last.delta)
        self._count(later.delta)
        self._merged += later.merged
        known = self._last
        # Without rows: they are in `_change` now.
        self._last = SubscriberNotification(
            known.spuid, known.alias, later.sequence, Delta(known.delta.variables, (), ())
        )

    def notification(self) -> SubscriberNotification:
        """Return the merged notification, with the last sequence number and the count. A single one is returned
        unchanged.
        """
        last, change = self._last, self._change
        if change is None:
            return last
        delta = Delta.of(last.delta.variables, change.items())
        return SubscriberNotification(last.spuid, last.alias, last.sequence, delta, self._merged)

    def _count(self, delta: Delta) -> None:
        change, size = self._change, self._rows
        assert change is not None  # noqa: S101
        assert size is not None  # noqa: S101
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for row in rows:
                count = change.add(row, sign)
                if not count:
                    size -= _bytes(row)
                elif count == sign:  # it was not there before
                    size += _bytes(row)
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
