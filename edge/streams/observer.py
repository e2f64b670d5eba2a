"""State of one observer: what follows from each answer of its callback URL. Pure: callers pass the time in.

Each report is sent at least once and in order. Three kinds of answers are failures:

- No answer, or status 5xx, 408, 425 or 429: the report is sent again until it succeeds, because the observer or the
  network may recover.
- Another status, such as 400, 404 or a redirect: the observer refuses this report. After some tries it counts as lost,
  and the next one follows.
- Status 410: the observer is gone and gets no more reports.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final, NamedTuple
from urllib.parse import quote

from edge.backoff import Backoff, Retry

BACKOFF: Final = Backoff(first=1.0, most=300.0)
"""Waits after failures."""
LONGEST_RETRY_AFTER: Final = 3_600.0
"""Seconds of the longest `Retry-After` that is respected. A longer one counts as this."""
REFUSALS: Final = 5
"""Refusals of one report after which it counts as lost."""

OK: Final = range(200, 300)
_REFUSED: Final = range(300, 500)
_GONE: Final = 410
TRY_AGAIN: Final = frozenset({408, 425, 429})
"""Request Timeout, Too Early (RFC 8470), Too Many Requests (RFC 6585): statuses 4xx that ask for a repetition."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_READABLE: Final = "!#$&'()+,*-./:;=?@[]_~"
"""Characters that need no percent-encoding in a header, next to letters and digits."""


class StoredReport(NamedTuple):
    """A report that waits for an observer."""

    number: int
    """Number of the report in its query, from 1; of merged reports, the last one."""
    time: int
    """Time of the report, of merged reports the last one, in microseconds since 1970."""
    content_type: str
    body: bytes
    merged: int = 1
    """Number of reports that it stands for."""
    correction: bool = False
    """Whether it corrects the report of an earlier time, which is its own time."""


class CallbackAnswer(NamedTuple):
    """Answer of a callback URL."""

    status: int
    retry_after: str | None = None
    """Value of the header `Retry-After`."""
    by: str = "observer"
    """Sender of the answer: "observer", or "target" or "inbox" of notifications."""


class Next(StrEnum):
    """What to do after an attempt."""

    ADVANCE = "advance"
    """The report is delivered, or lost: acknowledge it in the store."""
    RETRY = "retry"
    """Send the same report again, from `due` on."""
    END = "end"
    """Remove the observer."""


class ObserverStatus(NamedTuple):
    """State of an observer for its owner and for operators."""

    delivered: int
    """Reports that the observer has accepted since the start, merged ones included."""
    lost: int
    """Reports that the observer has refused, or that were dropped to bound the waiting ones."""
    failures: int
    """Failed attempts in a row."""
    problem: str
    """Reason of the last failed attempt; empty if the last attempt succeeded."""
    ended: bool
    """Whether the observer has answered 410 (Gone)."""


class ObserverState:
    """Delivery to one observer. Times are in seconds of a monotonic clock. Not thread-safe."""

    __slots__ = ("_last", "_refusals", "_retry", "_tries", "delivered", "due", "ended", "lost", "problem")

    def __init__(
        self, retry: Retry | None = None, *, refusals: int = REFUSALS, lost: int = 0, last: int | None = None
    ) -> None:
        """`refusals`: of one report, after which it is lost. `lost`: reports that were lost before. `last`: number of
        the last acknowledged report; None: unknown.
        """
        self._last = last
        self._retry = Retry(BACKOFF) if retry is None else retry
        self._tries = refusals
        self._refusals = 0
        self.due = 0.0
        """Time before which nothing is sent."""
        self.delivered = 0
        self.lost = lost
        self.problem = ""
        self.ended = False

    @property
    def status(self) -> ObserverStatus:
        """The state now."""
        return ObserverStatus(self.delivered, self.lost, self._retry.failures, self.problem, self.ended)

    def answered(self, report: StoredReport, answer: CallbackAnswer, now: float, date: float) -> Next:
        """Count an answer. `now`: monotonic. `date`: seconds since 1970, for dates in `Retry-After`."""
        if answer.status in OK:
            return self._delivered(report)
        if answer.status == _GONE:
            self.ended, self.problem = True, f"the {answer.by} answered 410 (Gone)"
            return Next.END
        self._failed(f"the {answer.by} answered {answer.status}{_advice(answer.status)}", now)
        self.due = max(self.due, now + retry_after(answer.retry_after, date))
        if answer.status in _REFUSED and answer.status not in TRY_AGAIN:
            self._refusals += 1
            if self._refusals >= self._tries:
                # The wait before the next report goes on growing: an observer that refuses all of them is not called
                # more often than one that is down.
                self._refusals = 0
                self.lost += self._advanced(report)
                return Next.ADVANCE
        return Next.RETRY

    def unanswered(self, reason: str, now: float) -> Next:
        """Count an attempt without a valid answer."""
        self._failed(reason, now)
        return Next.RETRY

    def _delivered(self, report: StoredReport) -> Next:
        self._retry.succeeded()
        self._refusals = 0
        self.problem = ""
        self.delivered += self._advanced(report)
        return Next.ADVANCE

    def _advanced(self, report: StoredReport) -> int:
        """Count dropped reports before this one. Return how many reports it brings."""
        last, self._last = self._last, report.number
        if last is None:
            return report.merged
        new = min(report.merged, max(report.number - last, 0))
        self.lost += max(report.number - last - new, 0)
        return new

    def _failed(self, reason: str, now: float) -> None:
        self.problem = reason
        self.due = now + self._retry.failed()


def retry_after(value: str | None, date: float) -> float:
    """Return the seconds of a header `Retry-After`, a number or a date (RFC 9110, section 10.2.3); 0 if not valid."""
    if value is None:
        return 0.0
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(value)
        seconds = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - date
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def report_headers(
    query: str, observer: str, report: StoredReport, query_url: str = "", identifier: str = ""
) -> dict[str, str]:
    """Return the headers of a request that delivers a report.

    `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) is the same in each attempt, so that an observer can
    ignore repetitions. The `identifier` of the query is a part of it: after a restored backup, other reports have the
    numbers of those since the backup. `Report-Merged` is the number of reports that this one stands for: it covers the
    numbers from `Report-Number` - `Report-Merged` + 1 on. If these do not follow the last received number, reports were
    lost. `Report-Correction: ?1` (a boolean of RFC 9651) marks a correction. Names are percent-encoded UTF-8.
    `query_url` is the absolute URL of the query; empty for none.
    """
    name = quote(query, safe=_READABLE)
    headers = {
        "Content-Type": report.content_type,
        "Idempotency-Key": f'"{name}:{quote(observer, safe="")}:{identifier}:{report.number}"',
        "Report-Query": f'"{name}"',
        "Report-Number": str(report.number),
        "Report-Time": iso_time(report.time),
        "Report-Merged": str(report.merged),
    }
    if report.correction:
        headers["Report-Correction"] = "?1"
    if query_url:
        headers["Link"] = f'<{quote(query_url, safe=_READABLE + "%")}>; rel="via"'
    return headers


def iso_time(time: int) -> str:
    """Return a time in microseconds since 1970 as text (RFC 3339), or as a number if it has no such form."""
    seconds, microseconds = divmod(time, 1_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
    except (ValueError, OverflowError, OSError):
        return str(time)  # application time may be any number
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _advice(status: int) -> str:
    return " (a redirect is not followed: register the new URL)" if status in range(300, 400) else ""
