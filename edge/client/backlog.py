"""What a subscriber has not been told yet: bounded, and never a duplicate or a gap."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from edge.client.rows import Row


@dataclass(frozen=True, slots=True)
class Notification:
    """What changed in the result of a subscribed query. Rows are bags: a row may be there twice.

    `sequence` 0 holds the whole result as added; from then on it counts the notifications handed over, also over
    reconnections. Take the removed rows out first, then put the added ones in.
    """

    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    sequence: int


class Backlog:
    """Changes on their way from the broker to the application, and the result that they lead to.

    At most `limit` notifications wait. For an application that is slower what comes then is merged into the last one,
    so that memory is bounded by the result, not by how often it changes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._result: Counter[Row] = Counter()
        self._waiting: deque[Counter[Row]] = deque()
        self._handed = 0
        self._begun = False

    def rows(self) -> list[Row]:
        """The newest result."""
        return list(self._result.elements())

    def replace(self, rows: Iterable[Row]) -> None:
        """A whole result, the broker's sequence 0. After the first one, only what differs is a change."""
        result = Counter(rows)
        change = Counter(result)
        change.subtract(self._result)
        self._result = result
        self._push(change, always=not self._begun)
        self._begun = True

    def change(self, added: Iterable[Row], removed: Iterable[Row]) -> None:
        """What the broker says came and went. Rows that are not in the result cannot leave it."""
        change: Counter[Row] = Counter()
        result = self._result
        for row in removed:
            if count := result[row]:
                if count == 1:
                    del result[row]
                else:
                    result[row] = count - 1
                change[row] -= 1
        for row in added:
            result[row] += 1
            change[row] += 1
        self._push(change)

    def take(self) -> Notification | None:
        """The next notification, or None if nothing waits."""
        while self._waiting:
            change = self._waiting.popleft()
            notification = Notification(tuple(change.elements()), tuple((-change).elements()), self._handed)
            if notification.added or notification.removed or not self._handed:
                self._handed += 1
                return notification
        return None

    def _push(self, change: Counter[Row], *, always: bool = False) -> None:
        if not always and not any(change.values()):
            return
        if len(self._waiting) < self._limit:
            self._waiting.append(change)
            return
        last = self._waiting[-1]
        for row, count in change.items():
            if merged := last[row] + count:
                last[row] = merged
            else:
                del last[row]
