"""Bounded backlog of undelivered changes of a subscription, without duplicates or gaps."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from edge.client.rows import Row


@dataclass(frozen=True, slots=True)
class Notification:
    """A change of the result of a subscribed query. Rows are bags: a row may occur several times.

    `sequence` 0 has the whole result as added rows. Then it counts the delivered notifications, also across
    reconnections. Apply the removed rows first, then the added ones.
    """

    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    sequence: int


class Backlog:
    """Changes between the broker and the application, and the result that they produce.

    At most `limit` notifications wait. Further ones are merged into the last one (conflation), so the size of the
    result bounds the memory, not the rate of changes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._result: Counter[Row] = Counter()
        # Waiting changes. A positive count stands for added rows, a negative one for removed rows.
        self._waiting: deque[Counter[Row]] = deque()
        self._handed = 0
        self._begun = False

    def rows(self) -> list[Row]:
        """Newest result."""
        return list(self._result.elements())

    def replace(self, rows: Iterable[Row]) -> None:
        """Take a whole result (the broker's sequence 0). After the first one, only the difference is a change."""
        result = Counter(rows)
        change = Counter(result)
        change.subtract(self._result)
        self._result = result
        self._push(change, always=not self._begun)
        self._begun = True

    def change(self, added: Iterable[Row], removed: Iterable[Row]) -> None:
        """Take a change from the broker. Removals of rows that are not in the result are ignored."""
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
        """Return the next notification, or None if none waits."""
        while self._waiting:
            change = self._waiting.popleft()
            # `elements` skips negative counts, and unary minus drops positive ones.
            notification = Notification(tuple(change.elements()), tuple((-change).elements()), self._handed)
            # Merged changes may cancel each other out. The first result is delivered even if it is empty.
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
        # Opposite counts of a row add up to 0 and disappear, so a merged change has at most the rows of two results.
        last = self._waiting[-1]
        for row, count in change.items():
            if merged := last[row] + count:
                last[row] = merged
            else:
                del last[row]
