"""The followers of registered queries, and their continuation after a lost connection.

All methods are called on the thread of the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from edge.engine.admission.byte_quota import Charge
from edge.protocol.access import Access
from edge.protocol.errors import InvalidRequest, NotReady, StorageFailed
from edge.protocol.report_position import ReportPosition
from edge.streams.followed_reports import FollowedReports
from edge.streams.kept_reports import KeptReports
from edge.streams.processor import Processor
from edge.streams.running_query import Follower, RunningQuery


class Followers:
    """The followers of all queries."""

    def __init__(
        self, processor: Processor, kept: KeptReports, most: int, closed: Callable[[FollowedReports], object]
    ) -> None:
        """`kept`: the reports for followers that come back. `most` and `closed`: see `FollowedReports`; `closed` passes
        them to `remove`.
        """
        self._processor = processor
        self._kept = kept
        self._most = most
        self._closed = closed

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
            self._kept.expect(found.name)
            raise NotReady(f'The query "{name}" has not begun yet: {found.failure}; try again later')
        if found.failure:
            raise InvalidRequest(f'The query "{name}" has failed and reports nothing any more: {found.failure}')
        with suppress(StorageFailed):
            self._processor.commit()
        # With another one, the client could know a number that the query does not have after a crash. It gets the other
        # reports when they are durable: after a slide in progress, or when the disk works again.
        last = self._processor.durable_number(found)
        number, of = _number(found, after, last), found.identifier
        operator = found.query.operator
        reports = FollowedReports(found.name, number, operator, self._most, largest, charge, wake, self._closed, of)
        with suppress(StorageFailed):  # it follows nevertheless; reports are not kept before the disk works again
            self._kept.follow(found.name, again=after is not None)
        if after is not None:
            reports.begin(self._kept.after(found.name, number))
        found.followers[reports] = Follower(lambda report: reports.put(self._kept.form(report)), reports.end)
        return reports

    def remove(self, reports: FollowedReports) -> None:
        """Note that a follower is gone. It may come back."""
        found = self._processor.find(reports.query)
        if found is not None and found.followers.pop(reports, None) is not None:
            self._kept.expect(found.name)


def _number(query: RunningQuery, after: ReportPosition | None, last: int) -> int:
    """Return the number after which a follower gets the reports that are kept. `last`: that of the last durable one."""
    if after is None:
        return last
    # A greater number is that of an earlier query with this name, or of a later state before data were restored.
    is_other = after.of not in (None, query.identifier) or after.number > last
    return 0 if is_other else after.number
