"""Blocking iterator of the reports of a query."""

from __future__ import annotations

import contextlib

from edge.client.errors import Closed
from edge.client.loop_thread import LoopThread
from edge.client.report_feed import ReportFeed
from edge.client.reports import Report
from edge.client.sync_iterator import SyncIterator, next_item


class SyncReportFeed(SyncIterator[Report]):
    """Blocking iterator of reports; it ends when it is closed."""

    def __init__(self, thread: LoopThread, feed: ReportFeed) -> None:
        self._thread = thread
        self._feed = feed

    def next(self, timeout: float | None = None) -> Report | None:
        """Return the next report; None when closed. Raises `TimeoutError` after `timeout` seconds, and `Refused` when
        the query has ended or the client may not follow it any more.
        """
        return self._thread.run(next_item(self._feed), timeout)

    @property
    def of(self) -> str | None:
        """See `ReportFeed.of`."""
        return self._feed.of

    def close(self) -> None:
        """End the feed."""
        with contextlib.suppress(Closed):
            self._thread.run(self._feed.close())
