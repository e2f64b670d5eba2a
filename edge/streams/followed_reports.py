"""The reports of a query that wait for one follower: they are kept in memory only, and merged if it is slow."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence

from edge.engine.admission.byte_quota import Charge
from edge.protocol.errors import EdgeError, NotFound
from edge.streams.model import StreamOperator
from edge.streams.observer import StoredReport, iso_time
from edge.streams.report import RESULTS, Report, content_type
from edge.streams.report_merge import OVERHEAD, bounded, size_of


class FollowedReports:
    """A queue between the thread of the streams, which adds reports, and the one that sends them. Thread-safe."""

    def __init__(
        self,
        query: str,
        number: int,
        operator: StreamOperator,
        most: int,
        largest: int | None,
        charge: Charge,
        wake: Callable[[], None],
        closed: Callable[[FollowedReports], object],
        of: str = "",
    ) -> None:
        """`number`: of the last report. `most`: bytes of the waiting reports, beyond which they are merged. `largest`:
        see `bounded`. `charge`: counts them for the client. `wake` is called on the thread of the streams when there is
        something to send, and `closed` by `close`. `of`: identifier of the query.
        """
        self.query = query
        self.of = of
        self.number = number
        self._last = number
        """Number of the last report that the queue has had."""
        self._operator = operator
        self._most = most
        self._largest = largest
        self._charge = charge
        self._wake = wake
        self._closed = closed
        self._lock = threading.Lock()
        self._waiting: deque[StoredReport] = deque()
        self._bytes = 0
        """Size of the waiting reports, and of those that are being merged."""
        self._sending = 0
        """Size of the report that `take` has returned last."""
        self._error: EdgeError | None = None

    def put(self, report: StoredReport) -> None:
        """Add a report. If the client may not hold more bytes, this ends the queue with the reason.

        Reports that were made before the queue are ignored: the last of them may become durable only now. The queue
        also ignores reports that it has from the store already.
        """
        with self._lock:
            if self._error is not None or report.number <= self._last:
                return
            self._last = report.number
            self._waiting.append(report)
            self._bytes += size_of([report], OVERHEAD)
            too_large = self._bytes > self._most
            if not too_large:
                self._account()
        if too_large:
            self._merge()
        self._wake()

    def begin(self, kept: Sequence[StoredReport]) -> None:
        """Add reports that were made before, in order: the newest ones that fit into half of the room of the client.

        The other half is for those that come while it reads. With an error for too many it would get none, each time.
        """
        size, first = 0, len(kept)
        with self._lock:
            for report in reversed(kept):
                size += size_of([report], OVERHEAD)
                try:
                    self._charge.set(2 * min(size, self._most))
                except EdgeError:
                    break
                first -= 1
            self._waiting.extend(kept[first:])
            self._last = max([self._last, *(report.number for report in kept[-1:])])
            self._bytes = size_of(kept[first:], OVERHEAD)
            too_large = self._bytes > self._most
            self._charge.set(min(self._bytes, self._most), check=False)
        if too_large:
            self._merge()
        if first < len(kept):
            self._wake()

    def _merge(self) -> None:
        # Not under the lock: it can take long, and `take` may not stop the event loop. Only this thread adds reports.
        with self._lock:
            waiting, self._waiting = tuple(self._waiting), deque()
        kept = bounded(waiting, self._operator, self._most, overhead=OVERHEAD, largest=self._largest).reports
        with self._lock:
            if self._error is None:
                self._waiting.extend(kept)
                self._bytes = size_of(kept, OVERHEAD)
                self._account()

    def end(self, reason: str | EdgeError) -> None:
        """Take no more reports. Those that wait are still sent. `reason`: a text if the query has ended."""
        with self._lock:
            self._error = self._error or (NotFound(reason) if isinstance(reason, str) else reason)
        self._wake()

    def take(self) -> str | None:
        """Remove the next report, and return it as a message; None: none waits. It counts for the client until the
        next call, because it stays in memory until the client has accepted it.
        """
        with self._lock:
            self._sending = 0
            report = self._waiting.popleft() if self._waiting else None
            if report is not None:
                self._sending = size_of([report], OVERHEAD)
                self._bytes -= self._sending
            self._charge.set(self._bytes + self._sending, check=False)
        return None if report is None else _message(self.query, report)

    @property
    def error(self) -> EdgeError | None:
        """Why no reports follow those that wait; None: some may."""
        return self._error

    def close(self) -> None:
        """Forget what waits: nobody sends it any more."""
        with self._lock:
            self._sending = 0
            self._end(self._error or NotFound("The follower is gone"))
        self._closed(self)

    def _account(self) -> None:
        try:
            self._charge.set(self._bytes + self._sending)
        except EdgeError as error:
            self._end(error)

    def _end(self, error: EdgeError) -> None:
        self._error = error
        self._waiting.clear()
        self._bytes = 0
        self._charge.set(self._sending, check=False)


def stored(report: Report) -> StoredReport:
    """Return a report in the form in which it waits."""
    correction = report.removed is not None
    return StoredReport(report.number, report.time, content_type(report.kind), report.body(), correction=correction)


def _message(query: str, report: StoredReport) -> str:
    """Return a report as JSON. Its members have the meaning of the headers of `report_headers`."""
    head: dict[str, object] = {
        "query": query,
        "number": report.number,
        "time": iso_time(report.time),
        "merged": report.merged,
    }
    if report.correction:
        head["correction"] = True
    head["content_type"] = report.content_type
    text = report.body.decode()
    content = text if report.content_type == RESULTS else json.dumps(text, ensure_ascii=False)
    return f'{{"report":{json.dumps(head)[:-1]},"content":{content}}}}}'
