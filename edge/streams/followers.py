"""The followers of registered queries, and the reports that are kept for clients whose connection was lost.

All methods are called on the thread of the processor.
"""

from __future__ import annotations

from collections.abc import Callable

from edge.engine.admission.byte_quota import Charge
from edge.engine.clock import Clock
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotReady
from edge.protocol.report_position import ReportPosition
from edge.streams.followed_reports import FollowedReports, stored
from edge.streams.observer import StoredReport
from edge.streams.processor import Processor
from edge.streams.recent_reports import RecentReports
from edge.streams.report import Report
from edge.streams.running_query import Follower, RunningQuery
from edge.streams.settings import StreamSettings


class Followers:
    """The followers of all queries."""

    def __init__(
        self, processor: Processor, settings: StreamSettings, closed: Callable[[FollowedReports], object], clock: Clock
    ) -> None:
        """`closed`: see `FollowedReports`; it passes them to `remove`."""
        self._clock = clock
        self._processor = processor
        self._most = settings.max_reports
        self._closed = closed
        self._recent = RecentReports(settings.max_recent_reports)
        self._last: tuple[Report, StoredReport] | None = None
        """The last report that a follower got, in both forms."""

    def begin(self) -> None:
        """Note that the queries of an earlier process go on. Their followers come back soon."""
        if self._processor.all_queries():
            self._recent.expect_all(self._clock.steady())

    def add(
        self,
        name: str,
        access: Access,
        charge: Charge,
        wake: Callable[[], None],
        largest: int | None,
        after: ReportPosition | None,
    ) -> FollowedReports:
        """Follow a query of the client. Arguments: see `StreamService.follow`. Raises `EdgeError`."""
        found = self._processor.owned(name, access)
        if found.is_late:
            raise NotReady(f'The query "{name}" has not begun yet: {found.failure}; try again later')
        if found.failure:
            raise InvalidRequest(f'The query "{name}" has failed and reports nothing any more: {found.failure}')
        number, of = _number(found, after), found.identifier
        operator = found.query.operator
        reports = FollowedReports(found.name, number, operator, self._most, largest, charge, wake, self._closed, of)
        reports.begin(self._recent.after(found.name, number))
        found.followers[reports] = Follower(lambda report: reports.put(self._stored(report)), reports.end)
        self._recent.expect(found.name, self._clock.steady())
        return reports

    def remove(self, reports: FollowedReports) -> None:
        """Note that a follower is gone. It may come back."""
        found = self._processor.find(reports.query)
        if found is not None and found.followers.pop(reports, None) is not None:
            self._recent.expect(found.name, self._clock.steady())

    def forget(self, query: str) -> None:
        """Forget a query that has ended."""
        self._recent.forget(query)

    def keep(self, query: RunningQuery, report: Report) -> None:
        """Keep a new report for followers that come back."""
        if query.is_subscription:
            return
        now = self._clock.steady()
        if query.followers:
            self._recent.expect(query.name, now)
        try:
            if self._recent.wants(query.name, now):
                self._recent.keep(query.name, self._stored(report))
        except BaseException:
            self._recent.forget(query.name)  # a gap among the kept ones would look as if none had been made
            raise

    def _stored(self, report: Report) -> StoredReport:
        """Return the form of a report that all its followers share."""
        if self._last is None or self._last[0] is not report:
            self._last = report, stored(report)
        return self._last[1]


def _number(query: RunningQuery, after: ReportPosition | None) -> int:
    """Return the number after which a follower gets the reports that are kept."""
    if after is None:
        return query.number
    # A greater number is that of an earlier query with this name, or of a later state before data were restored.
    is_other = after.of not in (None, query.identifier) or after.number > query.number
    return 0 if is_other else after.number
