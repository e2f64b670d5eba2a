"""Transactions: changes become durable with the time, and elements that no window needs are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edge.streams.processor.cleaning import NOTHING, cleaning
from edge.streams.processor.pending_changes import PendingChanges
from edge.streams.processor.registered_queries import RegisteredQueries
from edge.streams.processor.registered_streams import RegisteredStreams
from edge.streams.processor.window_clock import WindowClock
from edge.streams.processor.window_users import WindowUsers
from edge.streams.report import Report
from edge.streams.running_query import RunningQuery
from edge.streams.store import StreamStore

_CLEANING: Final = 10_000_000
"""Microseconds between two removals of elements that no window needs."""


class Committer:
    """Stores what has happened. Methods raise `StorageFailed`."""

    def __init__(
        self,
        store: StreamStore,
        streams: RegisteredStreams,
        queries: RegisteredQueries,
        users: WindowUsers,
        pending_changes: PendingChanges,
        clock: WindowClock,
    ) -> None:
        self._store = store
        self._streams = streams
        self._queries = queries
        self._users = users
        self._pending_changes = pending_changes
        self._clock = clock
        self._cleaned = clock.time
        self.is_cleaning = False
        """Whether more can be removed from the store: the next commit goes on."""
        self.durable: list[Report] = []
        """Durable reports that `take_reports` has not returned."""

    def take_reports(self) -> list[Report]:
        """Make the reports durable, and return them. After `StorageFailed` a later call returns them.

        Those of a slide or corrections in progress become durable together, after the end.
        """
        if self._pending_changes.is_complete and (self._pending_changes.number or self._must_clean):
            self.commit()
        reports, self.durable = self.durable, []
        return reports

    @property
    def _must_clean(self) -> bool:
        return self.is_cleaning or self._clock.time >= self._cleaned + _CLEANING

    def commit(self, change: Callable[[], None] = lambda: None) -> None:
        """Make the reports and the state of this time durable, together with a further change.

        During a slide or corrections, only the further change: after a crash, these are made again.
        """
        if not self._pending_changes.is_complete:
            with self._store.transaction():
                change()
            return
        time, cleans = self._clock.time, self._must_clean
        unneeded = cleaning(self._streams, self._queries, self._users, time) if cleans else NOTHING
        with self._store.transaction():
            self._pending_changes.store(self._store)
            self._store.set_time(time)
            unneeded.store(self._store)
            change()
        # Only after the transaction: if it fails, the reports stay pending, and the next commit has them.
        self.durable += self._pending_changes.reports
        self._pending_changes.clear()
        unneeded.finish()
        self.is_cleaning = not unneeded.is_done
        if cleans:
            self._cleaned = time

    def forget_query(self, query: RunningQuery) -> None:
        """Forget the reports of a query that has ended."""
        self._pending_changes.forget_query(query)
        self.durable = [report for report in self.durable if report.query != query.name]
