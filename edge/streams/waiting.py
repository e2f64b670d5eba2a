"""Reports in the store: they wait for observers, merged for those that are slow, and are kept for followers."""

from __future__ import annotations

from collections.abc import Sequence

from edge.streams.kept_reports import KeptReports
from edge.streams.model import StreamOperator
from edge.streams.observer import StoredReport
from edge.streams.report import Report
from edge.streams.report_merge import OVERHEAD, bounded
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow, StoredObserver, stored_report


class WaitingReports:
    """The observers of all queries. One thread uses it. Methods raise `StorageFailed`."""

    def __init__(self, store: StreamStore, most: int, kept: KeptReports | None = None) -> None:
        """`most`: bytes of the waiting reports of a query, beyond which they are merged. `kept`: those that stay for
        followers; they are not merged, and do not count. None: none stay.
        """
        self._store = store
        self._kept = kept or KeptReports(store, 0)
        self._most = most
        self._observers = {observer.id: observer for observer in store.observers()}
        self._of: dict[str, set[str]] = {}
        """Ids of the observers of each query that has one."""
        for observer in self._observers.values():
            self._of.setdefault(observer.query, set()).add(observer.id)
        self._sizes: dict[str, int] = {}
        self._pending_changes: set[str] = set()
        """Observers whose last acknowledgement is not stored."""

    @property
    def observers(self) -> Sequence[StoredObserver]:
        """All observers."""
        return list(self._observers.values())

    def of(self, query: str) -> list[StoredObserver]:
        """Return the observers of a query."""
        return [self._observers[observer] for observer in sorted(self._of.get(query, ()))]

    @property
    def is_stored(self) -> bool:
        """Whether all that observers have acknowledged is stored."""
        return not self._pending_changes

    def find(self, observer: str) -> StoredObserver | None:
        """Return an observer."""
        return self._observers.get(observer)

    def add(self, observer: StoredObserver) -> None:
        """Add an observer."""
        with self._store.transaction():
            self._store.put_observer(observer)
        self._observers[observer.id] = observer
        self._of.setdefault(observer.query, set()).add(observer.id)

    def remove(self, observer: str) -> None:
        """Remove an observer. Unknown ones are ignored."""
        found = self._observers.get(observer)
        if found is None:
            return
        self.flush()  # after a crash, removed reports that are not acknowledged would count as lost
        with self._store.transaction():
            self._store.drop_observer(observer)
            self._drop(found.query, without=observer)
        del self._observers[observer]
        self._pending_changes.discard(observer)
        self._of[found.query].discard(observer)
        if not self._of[found.query]:
            del self._of[found.query]

    def forget(self, query: str) -> list[str]:
        """Forget the observers of a query that has ended; the store has done so. Returns their ids."""
        ended = [observer.id for observer in self.of(query)]
        for observer in ended:
            del self._observers[observer]
        self._pending_changes.difference_update(ended)
        self._of.pop(query, None)
        self._sizes.pop(query, None)
        self._kept.forget(query)
        return ended

    def waiting(self, observer: str, most: int) -> list[StoredReport]:
        """Return the oldest reports that an observer does not have yet, at most `most`."""
        found = self._observers.get(observer)
        if found is None:
            return []
        rows = self._store.reports(found.query, found.acknowledged, most)
        return [stored_report(row) for row in rows]

    def acknowledged(self, observer: str, number: int) -> None:
        """Note that an observer needs no reports up to this number. `flush` stores it.

        Without that, the observer gets them again after a crash, with the same keys.
        """
        found = self._observers.get(observer)
        if found is None or number <= found.acknowledged:
            return
        self._observers[observer] = found._replace(acknowledged=number)
        self._pending_changes.add(observer)

    def flush(self) -> None:
        """Store what observers have acknowledged, in one transaction."""
        if not self._pending_changes:
            return
        observers = [self._observers[observer] for observer in self._pending_changes]
        with self._store.transaction():
            for query in {observer.query for observer in observers}:
                self._drop(query)
        self._pending_changes.clear()

    def expire(self) -> None:
        """Remove the kept reports of queries whose followers have not come back."""
        for query in self._kept.expired():
            with self._store.transaction():
                self._store.unmark_followed(query)
                self._drop(query)
            self._kept.forget(query)

    def body(self, report: Report) -> bytes | None:
        """Return the content of a new report if it has to be stored: an observer waits for it, or it is kept.

        Called in the transaction that stores it, which also removes reports that are not kept any more.
        """
        query = report.query
        body = self._kept.content(report)
        for each in self._kept.dropped():
            self._drop(each)
        if query in self._of and body is None:
            body = report.body()
        if query in self._sizes and body is not None:
            self._sizes[query] += len(body) + OVERHEAD
            self._store.undo_with(lambda: self._sizes.pop(query, None))
        return body

    def bound(self, query: str, operator: StreamOperator) -> None:
        """Merge the waiting reports of a query if they are too large."""
        if query not in self._sizes:
            self._sizes[query] = self._store.report_bytes(query, OVERHEAD)
        if self._sizes[query] - self._kept.size(query) > self._most:
            self._merge(query, operator)
            self._sizes[query] = self._store.report_bytes(query, OVERHEAD)

    def _drop(self, query: str, without: str = "") -> None:
        """Remove the reports that all observers have and that are not kept. `without`: an observer that ends.

        With them, store what the observers have acknowledged: otherwise, after a crash, the removed reports would count
        as lost.
        """
        observers = [each for each in self.of(query) if each.id != without]
        for each in observers:
            if each.id in self._pending_changes:
                self._store.acknowledge(each.id, each.acknowledged)
        numbers = [each.acknowledged for each in observers]
        self._store.drop_reports(query, min([*numbers, self._kept.first(query) - 1]))
        self._sizes.pop(query, None)

    def _merge(self, query: str, operator: StreamOperator) -> None:
        self.flush()  # as in `remove`
        first = self._kept.first(query)
        rows = self._store.reports(query, 0, -1, first)
        kinds = {row.number: row.kind for row in rows}
        positions = [observer.acknowledged for observer in self.of(query)]
        merged = bounded([stored_report(row) for row in rows], operator, self._most, positions, overhead=OVERHEAD)
        with self._store.transaction():
            self._store.replace_reports(
                query,
                [
                    ReportRow(each.number, each.time, kinds[each.number], each.merged, each.body)
                    for each in merged.reports
                ],
                first,
            )
