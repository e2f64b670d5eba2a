"""Notifications of one subscription merged into one: what they come to together."""

from __future__ import annotations

from collections.abc import Iterable

from edge.engine.requests import Delta, Notification
from edge.protocol.results import Row


class Net:
    """A notification, and those after it as they come.

    A row that was added and removed again is neither. So this never holds more than the result before and the result
    after, however many notifications it takes in.
    """

    __slots__ = ("_counts", "_last", "_merged", "length", "since")

    def __init__(self, first: Notification, since: float = 0.0) -> None:
        """`since`: when it came, by the clock of who asks."""
        self.since = since
        self._last = first
        self._merged = first.merged
        self.length = sum(map(len, first.delta.json))
        """Characters of the results of the first one."""
        self._counts: dict[Row, int] | None = None

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
            self._counts = {}
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
        assert self._counts is not None  # noqa: S101
        counts = self._counts
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for row in rows:
                count = counts.get(row, 0) + sign
                if count:
                    counts[row] = count
                else:
                    del counts[row]


def _rows(counted: Iterable[tuple[Row, int]]) -> Iterable[Row]:
    for row, count in counted:
        for _ in range(count):
            yield row
