"""Changes since the last transaction that have to be stored with the next one."""

from __future__ import annotations

from collections.abc import Callable

from edge.streams.report import Report
from edge.streams.running_query import RunningQuery
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow, StoredElement
from edge.streams.stream import Stream


class PendingChanges:
    """Reports, derived elements, and changes of streams and queries."""

    def __init__(self, waiting: Callable[[Report], bytes | None]) -> None:
        """`waiting`: returns the content of a new report if an observer waits for it, so that it has to be stored."""
        self._waiting = waiting
        self.is_complete = True
        """False during a slide or corrections: their first reports must not be stored without the others."""
        self._reports: list[tuple[RunningQuery, Report]] = []
        self._first: dict[RunningQuery, int] = {}
        """Number of the first report of each query that has some."""
        self._derived: list[tuple[Stream, StoredElement]] = []
        self._fresh: dict[Stream, None] = {}
        """Streams with elements that came after the last slides."""
        self._changed: dict[Stream, None] = {}
        """Streams with elements that have come since reports were stored."""
        self._moved: dict[RunningQuery, None] = {}
        """Queries whose result at the last report is not stored."""

    @property
    def reports(self) -> list[Report]:
        """The reports, in order."""
        return [report for _, report in self._reports]

    @property
    def number(self) -> int:
        """Number of the reports."""
        return len(self._reports)

    def add_report(self, query: RunningQuery, report: Report) -> None:
        """Add a report."""
        self._reports.append((query, report))
        self._first.setdefault(query, report.number)

    def durable_number(self, query: RunningQuery) -> int:
        """Return the number of the last durable report of a query."""
        return self._first.get(query, query.number + 1) - 1

    def note_result(self, query: RunningQuery) -> None:
        """Note that the result of a query at its last report may have changed."""
        if query.unsaved:
            self._moved[query] = None

    def add_derived(self, stream: Stream, element: StoredElement) -> None:
        """Add an element that is the graph of a report."""
        self._derived.append((stream, element))

    def note_elements(self, stream: Stream) -> None:
        """Note that a stream has new elements."""
        self._fresh[stream] = self._changed[stream] = None

    def note_change(self, stream: Stream) -> None:
        """Note that the windows have the elements of a stream, or that corrections for them are reported."""
        self._changed[stream] = None

    def take_elements(self) -> None:
        """Note that the windows have all elements that are not held, because they have slid."""
        for stream in self._fresh:
            stream.taken = stream.held - 1 if stream.held else stream.number
            self._changed[stream] = None
        self._fresh.clear()

    def forget_stream(self, stream: Stream) -> None:
        """Forget what belongs to a stream that has ended."""
        self._fresh.pop(stream, None)
        self._changed.pop(stream, None)
        self._derived = [each for each in self._derived if each[0] is not stream]

    def forget_query(self, query: RunningQuery) -> None:
        """Forget what belongs to a query that has ended."""
        if self._first.pop(query, None) is not None:
            self._reports = [each for each in self._reports if each[0] is not query]
        self._moved.pop(query, None)

    def store(self, store: StreamStore) -> None:
        """Store all, in a transaction of the caller; `clear` follows it."""
        numbers: dict[str, int] = {}
        for query, report in self._reports:
            if query.is_subscription:
                continue
            numbers[report.query] = report.number
            body = self._waiting(report)
            if body is not None:
                store.report(report.query, ReportRow(report.number, report.time, report.kind, 1, body))
        store.set_numbers(numbers)
        for stream, element in self._derived:
            store.add(stream.id, element.element.number, [element])
        for stream in self._changed:
            store.set_taken(stream.id, stream.taken)
            if stream.uncorrected:
                store.corrected(stream.id, stream.uncorrected)
        for query in self._moved:
            store.change_result(query.name, query.unsaved)

    def clear(self) -> None:
        """Note that all is stored."""
        for query in self._moved:
            query.unsaved.clear()
        for stream in self._changed:
            stream.uncorrected.clear()
        self._moved.clear()
        self._changed.clear()
        self._first.clear()
        self._reports, self._derived = [], []
