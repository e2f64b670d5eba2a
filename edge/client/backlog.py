"""Bounded backlog of undelivered changes of a subscription, without duplicates or gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from edge.client.rows import Row
from edge.protocol.bag import Bag


@dataclass(frozen=True, slots=True)
class Notification:
    """A change of the result of a subscribed query. Rows are bags: a row may occur several times.

    `sequence` 0 has the whole result as added rows. Then it counts the delivered notifications, also across
    reconnections (except with `restart`, see `Client.subscribe`). Apply the removed rows first, then the added ones.
    """

    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    sequence: int
    merged: int = 1
    """Number of the broker's notifications that it combines."""


class NotificationBacklog:
    """Changes between the broker and the application, and the result that they produce.

    At most `limit` notifications wait. Further ones are merged into the last one (conflation), so the size of the
    result bounds the memory, not the rate of changes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._result: Bag[Row] = Bag()
        self._waiting: deque[_Change] = deque()
        self._merged = 0  # notifications whose merged change is empty, and that count with the next one
        self._handed = 0
        self._begun = False

    def rows(self) -> list[Row]:
        """Newest result."""
        return list(self._result.added)

    def replace(self, rows: Iterable[Row]) -> None:
        """Take a whole result (the broker's sequence 0). After the first one, only the difference is a change."""
        result = Bag.of(rows)
        change = result.since(self._result)
        self._result = result
        self._push(change, always=not self._begun)
        self._begun = True

    def change(self, added: Iterable[Row], removed: Iterable[Row], merged: int = 1) -> None:
        """Take a change from the broker. Removals of rows that are not in the result are ignored.

        `merged`: number of notifications that the broker combined.
        """
        change: Bag[Row] = Bag()
        for row in removed:
            if row in self._result:
                self._result.add(row, -1)
                change.add(row, -1)
        for row in added:
            self._result.add(row)
            change.add(row)
        self._push(change, merged)

    def restart(self) -> None:
        """Deliver the whole result next, as sequence 0. It includes the changes that wait."""
        self._waiting.clear()
        self._handed = self._merged = 0
        self._push(Bag(self._result), always=True)

    def take(self) -> Notification | None:
        """Return the next notification, or None if none waits."""
        while self._waiting:
            change = self._waiting.popleft()
            self._merged += change.merged
            # Merged changes may cancel each other out. The first result is delivered even if it is empty.
            if change.rows or not self._handed:
                self._handed += 1
                merged, self._merged = self._merged, 0
                return Notification(change.rows.added, change.rows.removed, self._handed - 1, merged)
        return None

    def _push(self, rows: Bag[Row], merged: int = 1, *, always: bool = False) -> None:
        if not rows and not always:
            return
        if len(self._waiting) < self._limit:
            self._waiting.append(_Change(rows, merged))
        else:
            last = self._waiting[-1]
            last.rows.merge(rows)
            last.merged += merged


@dataclass(slots=True)
class _Change:
    """An undelivered change, and the number of notifications that it combines."""

    rows: Bag[Row]
    merged: int
