"""Which reports of followed queries are kept: followers whose connection was lost ask for those after a number.

Only the numbers and sizes are in memory. The reports are in the store, next to those that wait for observers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

RETURN: Final = 600_000_000
"""Microseconds for which a query without followers keeps reports at most."""
LARGEST: Final = 64 * 1024
"""Bytes of the largest report that is kept: each one is written to the disk, which may be a card."""
_LARGEST_PART: Final = 4
"""One query has at most one of so many parts of the bytes, so that others keep something too."""
NONE: Final = range(0)
"""Numbers of the kept reports of a query that keeps none."""


class RecentReports:
    """Numbers of the kept reports. The oldest are dropped beyond a limit. One thread uses it.

    Times are in microseconds of a clock that never jumps.
    """

    def __init__(self, most: int) -> None:
        """`most`: bytes of all reports; 0: none is kept."""
        self._most = most
        self._until: dict[str, int] = {}
        """Time until which the reports of a query are kept."""
        # Not a dict: to find its first key takes longer with each key that was removed before it.
        self._sizes: OrderedDict[tuple[str, int], int] = OrderedDict()
        """By query and number, in the order in which they were made."""
        self._numbers: dict[str, range] = {}
        """Numbers of the kept reports of each query that has some. They have no gaps."""
        self._bytes: dict[str, int] = {}
        self.bytes = 0
        """Size of all reports."""
        self._dropped: set[str] = set()
        """Queries with reports that were dropped since `take_dropped`."""
        self.dropped_bytes = 0
        """Size of these reports."""

    def expect(self, query: str, now: int, time: int = RETURN) -> None:
        """Keep the reports of a query for some time: it has followers, or had one until now."""
        if self._most:
            self._until[query] = max(self._until.get(query, now), now + time)

    def wants(self, query: str, now: int) -> bool:
        """Return whether the reports of a query are kept."""
        return now < self._until.get(query, 0)

    def keep(self, query: str, number: int, size: int) -> None:
        """Keep a report of `size` bytes. A very large one, and those before it, are not kept.

        Nothing changes if the report is kept already.
        """
        kept = self.numbers(query)
        if number in kept:
            return
        most = self._most // _LARGEST_PART
        # A gap among the kept ones would look as if no report had been made.
        is_large = size > min(most, LARGEST)
        if is_large or number != kept.stop:
            self._drop(query)
        if is_large:
            return
        while self._bytes.get(query, 0) + size > most:
            self._drop_oldest(query)
        while self.bytes + size > self._most:
            self._drop_oldest(next(iter(self._sizes))[0])
        first = self._numbers[query].start if query in self._numbers else number
        self._numbers[query] = range(first, number + 1)
        self._sizes[query, number] = size
        self._bytes[query] = self._bytes.get(query, 0) + size
        self.bytes += size

    def numbers(self, query: str) -> range:
        """Return the numbers of the kept reports of a query, the newest ones that it has made."""
        return self._numbers.get(query, NONE)

    def size(self, query: str) -> int:
        """Return the bytes of the kept reports of a query."""
        return self._bytes.get(query, 0)

    def take_dropped(self) -> set[str]:
        """Return the queries with reports that were dropped since the last call."""
        dropped, self._dropped, self.dropped_bytes = self._dropped, set(), 0
        return dropped

    def untake_dropped(self, queries: set[str], size: int) -> None:
        """Undo `take_dropped`. `size`: bytes of their dropped reports."""
        self._dropped |= queries
        self.dropped_bytes += size

    def forget(self, query: str) -> None:
        """Forget a query: it has ended, or nobody has followed it for a while."""
        self._until.pop(query, None)
        self._drop(query)

    def _drop(self, query: str) -> None:
        while query in self._numbers:
            self._drop_oldest(query)

    def _drop_oldest(self, query: str) -> None:
        numbers = self._numbers[query]
        size = self._sizes.pop((query, numbers.start))
        self.bytes -= size
        self._bytes[query] -= size
        self._dropped.add(query)
        self.dropped_bytes += size
        self._numbers[query] = numbers[1:]
        if not self._numbers[query]:
            del self._numbers[query], self._bytes[query]
