"""Blocking iterator of the reports of a query."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from edge.client.errors import Closed
from edge.client.loop_thread import LoopThread
from edge.client.report_feed import ReportFeed
from edge.client.reports import Report


class SyncReportFeed:
    """Blocking iterator of reports; it ends when it is closed."""

    def __init__(self, thread: LoopThread, feed: ReportFeed) -> None:
        self._thread = thread
        self._feed = feed

    def next(self, timeout: float | None = None) -> Report | None:
        """Return the next report; None when closed. Raises `TimeoutError` after `timeout` seconds, and `Refused` when
        the query has ended or the client may not follow it any more.
        """
        return self._thread.run(_next(self._feed), timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Report:
        report = self.next()
        if report is None:
            raise StopIteration
        return report

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the feed."""
        with contextlib.suppress(Closed):
            self._thread.run(self._feed.close())


async def _next(feed: ReportFeed) -> Report | None:
    return await anext(feed, None)
