"""The durable reports that are kept for followers, within a limit for all queries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from edge.streams.followed_reports import stored
from edge.streams.observer import StoredReport
from edge.streams.recent_reports import RETURN, RecentReports
from edge.streams.report import Report
from edge.streams.report_merge import OVERHEAD
from edge.streams.store import LAST, StreamStore
from edge.streams.stored_rows import stored_report

_log = logging.getLogger(__name__)

_PARTS: Final = 8
"""Dropped reports leave the store when they have one of so many parts of the limit: one page then holds several of
them, so that fewer pages are written.
"""
_SHORTEST: Final = 60_000_000
"""Microseconds for which the reports of a query are kept at least after its last follower has gone."""
_REVIEW: Final = 10_000_000
"""Microseconds between two looks for queries whose followers do not come back."""


class KeptReports:
    """The reports in the store that followers can still ask for. One thread uses it.

    The store has each report once, for observers and followers together: `WaitingReports` adds and removes them.
    """

    def __init__(
        self,
        store: StreamStore,
        most: int,
        steady: Callable[[], int] = lambda: 0,
        has_followers: Callable[[str], bool] = lambda _query: False,
    ) -> None:
        """`most`: bytes of all reports. `steady`: a clock that never jumps, in microseconds. `has_followers`: whether a
        query has followers now. Raises `StorageFailed`.
        """
        self._store = store
        self._most = most
        self._steady = steady
        self._has_followers = has_followers
        self._recent = RecentReports(most)
        self._marked = store.followed_queries()
        """Followed queries of the store."""
        self._since: dict[str, int] = {}
        """Times since which queries have followers, or followers that may come back."""
        self._last: tuple[Report, StoredReport] | None = None
        """The last report in both forms."""
        now = steady()
        self._reviewed = now - _REVIEW
        for query in self._marked:
            # Their followers have lost their connections with the end of the process.
            self._since[query] = now - RETURN
            self._recent.expect(query, now)
        for query, number, size in _in_order(store):
            self._recent.keep(query, number, size + OVERHEAD)

    def follow(self, query: str, *, again: bool = False) -> None:
        """Keep the reports of a query from now on, also over a restart. `again`: the follower has come back.

        Raises `StorageFailed`. Then the reports are kept from the next one that can be stored.
        """
        now = self._steady()
        self._since.setdefault(query, now)
        if again:
            self._since[query] = min(self._since[query], now - RETURN)
        self.expect(query)
        if self._most and query not in self._marked:
            with self._store.transaction():
                self._store.mark_followed(query)
            self._marked.add(query)

    def expect(self, query: str) -> None:
        """Keep the reports of a followed query for a while: it has followers, or had one until now.

        For as long as it was followed, within limits: a short look at a query does not cause writes for long.
        """
        now = self._steady()
        self._recent.expect(query, now, min(max(now - self._since.get(query, now), _SHORTEST), RETURN))

    def content(self, report: Report) -> bytes | None:
        """Return the content of a new report if it is kept. Called in the transaction that stores the report.

        Raises `StorageFailed`.
        """
        query = report.query
        if self._has_followers(query):
            if self._most and query not in self._marked:  # the disk was full when they came
                self._store.mark_followed(query)
                self._marked.add(query)
                self._store.undo_with(lambda: self._marked.discard(query))
            self.expect(query)
        if query not in self._marked or not self._recent.wants(query, self._steady()):
            return None
        body = self.form(report).body
        try:
            self._recent.keep(query, report.number, len(body) + OVERHEAD)
        except Exception:  # noqa: BLE001  a fault must not stop the streams
            _log.exception("streams.not_kept", extra={"query": query})
            self._recent.forget(query)
            self.expect(query)
        return body if report.number in self._recent.numbers(query) else None

    def form(self, report: Report) -> StoredReport:
        """Return the form of a report that the store and all followers share."""
        if self._last is None or self._last[0] is not report:
            self._last = report, stored(report)
        return self._last[1]

    def dropped(self) -> set[str]:
        """Return the queries with reports that are not kept any more, when removing them is worth a write.

        Called in the transaction that removes them.
        """
        size = self._recent.dropped_bytes
        if size <= self._most // _PARTS:
            return set()
        found = self._recent.take_dropped()
        self._store.undo_with(lambda: self._recent.untake_dropped(found, size))
        return found

    def expired(self) -> list[str]:
        """Return the marked queries whose followers do not come back, every ten seconds. They keep no reports now;
        those that are stored, and the mark, have to leave the store, and `forget` follows it.
        """
        now = self._steady()
        if now - self._reviewed < _REVIEW:
            return []
        found = [each for each in self._marked if not (self._recent.wants(each, now) or self._has_followers(each))]
        for query in found:
            self._recent.forget(query)
        if not found:
            self._reviewed = now
        return found

    def first(self, query: str) -> int:
        """Return the number of the first kept report of a query; `LAST` if it has none."""
        numbers = self._recent.numbers(query)
        return numbers.start if numbers else LAST

    def size(self, query: str) -> int:
        """Return the bytes of the kept reports of a query, with the overhead of each."""
        return self._recent.size(query)

    def after(self, query: str, number: int) -> list[StoredReport]:
        """Return the kept reports of a query with numbers above `number`, in order. Earlier ones may be missing.

        Raises `StorageFailed`.
        """
        found = self._store.reports(query, max(number, self.first(query) - 1), -1)
        return [stored_report(row) for row in found]

    def forget(self, query: str) -> None:
        """Forget a query that has ended, or that nobody follows any more; the store has done so."""
        self._marked.discard(query)
        self._since.pop(query, None)
        self._recent.forget(query)


def _in_order(store: StreamStore) -> list[tuple[str, int, int]]:
    """Return query, number and size of the stored reports of followed queries, about in the order of their making."""
    found: list[tuple[int, str, int, int]] = []
    for query, rows in store.reports_of_followed().items():
        # Corrections have the times of earlier reports.
        times = accumulate((time for _, time, _ in rows), max)
        found += ((time, query, number, size) for time, (number, _, size) in zip(times, rows, strict=True))
    return [(query, number, size) for _, query, number, size in sorted(found, key=lambda each: each[0])]
