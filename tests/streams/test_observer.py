"""State of one observer, without sockets and clocks."""

from __future__ import annotations

import pytest

from edge.backoff import Retry
from edge.streams.observer import (
    BACKOFF,
    LONGEST_RETRY_AFTER,
    CallbackAnswer,
    Next,
    ObserverState,
    StoredReport,
    report_headers,
    retry_after,
)

JSON = "application/sparql-results+json"


def longest() -> ObserverState:
    """A state whose back-off always takes the longest wait."""
    return ObserverState(Retry(BACKOFF, lambda _, most: most))


def rows(number: int, *values: str) -> StoredReport:
    return StoredReport(number, number * 1_000_000, JSON, repr(values).encode())


REPORT = rows(7, "a")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
def test_any_success_delivers_the_report(status: int) -> None:
    state = longest()
    assert state.answered(REPORT, CallbackAnswer(status), 5.0, 0.0) is Next.ADVANCE
    assert state.status == (1, 0, 0, "", False)
    assert state.due <= 5.0


@pytest.mark.parametrize("status", [500, 502, 503, 599, 408, 425, 429, 600, 999])
def test_a_failing_observer_is_tried_forever_with_longer_waits(status: int) -> None:
    state, now = longest(), 100.0
    waits = []
    for _ in range(40):
        assert state.answered(REPORT, CallbackAnswer(status), now, 0.0) is Next.RETRY
        waits.append(state.due - now)
        now = state.due
    assert waits[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == waits[-1] == 300.0
    assert state.status.lost == 0
    assert f"answered {status}" in state.problem
    assert state.answered(REPORT, CallbackAnswer(200), now, 0.0) is Next.ADVANCE
    assert (state.status.failures, state.problem) == (0, "")


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 413, 422, 451])
def test_a_refused_report_is_lost_after_some_tries(status: int) -> None:
    state = longest()
    reports = [rows(7, "a")] * 5 + [rows(10, "b")._replace(merged=3)] * 5
    steps = [state.answered(report, CallbackAnswer(status), 0.0, 0.0) for report in reports]
    assert steps == ([Next.RETRY] * 4 + [Next.ADVANCE]) * 2
    assert state.status.lost == 4  # merged reports count as the ones that they stand for
    assert state.due == BACKOFF.longest(9)  # the waits go on growing over the next report


def test_failures_between_refusals_do_not_count_as_refusals() -> None:
    state = longest()
    steps = [state.answered(REPORT, CallbackAnswer(status), 0.0, 0.0) for status in (400, 500) * 4]
    assert steps == [Next.RETRY] * 8
    state.unanswered("refused", 0.0)
    assert state.answered(REPORT, CallbackAnswer(400), 0.0, 0.0) is Next.ADVANCE


def test_gone_ends_the_observer() -> None:
    state = longest()
    assert state.answered(REPORT, CallbackAnswer(410), 0.0, 0.0) is Next.END
    assert state.status.ended


def test_no_answer_keeps_the_report() -> None:
    state = longest()
    assert state.unanswered("connection refused", 10.0) is Next.RETRY
    assert (state.due, state.problem) == (11.0, "connection refused")


def test_retry_after_prolongs_the_wait_within_bounds() -> None:
    state = longest()
    state.answered(REPORT, CallbackAnswer(503, "120"), 10.0, 0.0)
    assert state.due == 130.0
    state.answered(REPORT, CallbackAnswer(503, "0"), 10.0, 0.0)
    assert state.due == 12.0  # never less than the back-off
    state.answered(REPORT, CallbackAnswer(429, "999999999"), 10.0, 0.0)
    assert state.due == 10.0 + LONGEST_RETRY_AFTER


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("-5", 0.0),
        ("1e9", 0.0),
        ("\u0663", 0.0),
        ("nan", 0.0),
        (" 30 ", 30.0),
        ("9" * 400, 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST_RETRY_AFTER),
        ("Thu, 01 Jan 1970 99:00:00 GMT", 0.0),
    ],
)
def test_retry_after_forms(value: str | None, seconds: float) -> None:
    assert retry_after(value, 10.0) == seconds


def test_headers_of_a_report() -> None:
    report = StoredReport(42, 1_500_000, JSON, b"", 3)
    assert report_headers('urn:q:\u00e9\r\n"x', "o/1", report, "https://gw/queries/q>\r\n", "f1") == {
        "Content-Type": JSON,
        "Idempotency-Key": '"urn:q:%C3%A9%0D%0A%22x:o%2F1:f1:42"',
        "Report-Query": '"urn:q:%C3%A9%0D%0A%22x"',
        "Report-Number": "42",
        "Report-Time": "1970-01-01T00:00:01.500000Z",
        "Report-Merged": "3",
        "Link": '<https://gw/queries/q%3E%0D%0A>; rel="via"',
    }
    assert report_headers("q", "o", report._replace(time=-1))["Report-Time"] == "1969-12-31T23:59:59.999999Z"
    assert report_headers("q", "o", report._replace(time=10**18))["Report-Time"] == str(10**18)


def test_percent_signs_of_names_are_encoded_so_that_keys_differ() -> None:
    keys = {report_headers(name, "o", REPORT)["Idempotency-Key"] for name in ("%22", '"', "%2522")}
    assert len(keys) == 3


def test_dropped_reports_count_as_lost() -> None:
    state = ObserverState(lost=1, last=3)
    state.answered(rows(4, "a"), CallbackAnswer(200), 0.0, 0.0)
    state.answered(rows(20, "a")._replace(merged=10), CallbackAnswer(200), 0.0, 0.0)  # 5 to 10 are missing
    state.answered(
        rows(22, "a")._replace(merged=9), CallbackAnswer(200), 0.0, 0.0
    )  # it covers some that were delivered
    assert (state.delivered, state.lost) == (13, 7)
