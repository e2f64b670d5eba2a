"""The last reports of followed queries, for followers whose connection is lost: they ask for those after a number."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from edge.streams.observer import StoredReport
from edge.streams.report_merge import OVERHEAD, size_of

_RETURN: Final = 600_000_000
"""Microseconds for which a query without followers keeps reports."""
_RECONNECT: Final = 120_000_000
"""Microseconds after a start for which all queries keep reports."""
_LARGEST_PART: Final = 4
"""One query has at most one of so many parts of the memory, so that others keep something too."""


class RecentReports:
    """Reports in memory, the oldest of which are dropped beyond a limit. One thread uses it.

    Times are in microseconds of a clock that never jumps.
    """

    def __init__(self, most: int) -> None:
        """`most`: bytes of all reports; 0: none is kept."""
        self._most = most
        self._until: dict[str, int] = {}
        """Time until which the reports of a query are kept."""
        self._all_until = 0
        """Time until which the reports of all queries are kept."""
        # Not a dict: to find its first key takes longer with each key that was removed before it.
        self._reports: OrderedDict[tuple[str, int], StoredReport] = OrderedDict()
        """By query and number, in the order in which they were made."""
        self._numbers: dict[str, deque[int]] = {}
        """Numbers of the kept reports of each query that has some."""
        self._sizes: dict[str, int] = {}
        self.bytes = 0
        """Size of all reports."""

    def expect_all(self, now: int) -> None:
        """Keep the reports of all queries for a while: after a start it is not known which of them are followed."""
        self._all_until = now + _RECONNECT

    def expect(self, query: str, now: int) -> None:
        """Keep the reports of a query for a while: it has followers, or had one until now."""
        self._until[query] = now + _RETURN

    def wants(self, query: str, now: int) -> bool:
        """Return whether the reports of a query are kept. Forgets them if this has ended."""
        if not self._most:
            return False
        if now < self._all_until or now < self._until.get(query, 0):
            return True
        if query in self._until or query in self._numbers:
            self.forget(query)
        return False

    def keep(self, query: str, report: StoredReport) -> None:
        """Keep a report. A very large one, and those before it, are not kept."""
        size, most = size_of([report], OVERHEAD), self._most // _LARGEST_PART
        if size > most:
            self._drop(query)
            return
        while self._sizes.get(query, 0) + size > most:
            self._drop_oldest(query)
        while self.bytes + size > self._most:
            self._drop_oldest(next(iter(self._reports))[0])
        self._reports[query, report.number] = report
        self._numbers.setdefault(query, deque()).append(report.number)
        self._sizes[query] = self._sizes.get(query, 0) + size
        self.bytes += size

    def after(self, query: str, number: int) -> list[StoredReport]:
        """Return the kept reports of a query with numbers above `number`, in order. Earlier ones may be missing."""
        return [self._reports[query, each] for each in self._numbers.get(query, ()) if each > number]

    def forget(self, query: str) -> None:
        """Forget a query: it has ended, or nobody has followed it for a while."""
        self._until.pop(query, None)
        self._drop(query)

    def _drop(self, query: str) -> None:
        while query in self._numbers:
            self._drop_oldest(query)

    def _drop_oldest(self, query: str) -> None:
        numbers = self._numbers[query]
        report = self._reports.pop((query, numbers.popleft()))
        size = size_of([report], OVERHEAD)
        self.bytes -= size
        self._sizes[query] -= size
        if not numbers:
            del self._numbers[query], self._sizes[query]
