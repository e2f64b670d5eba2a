"""Reports of continuous queries as JSON and as lines, for all forms of queries and for corrections."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyoxigraph as ox
import pytest

from edge.cli.queries import _report
from edge.cli.reports import message
from edge.client import Report
from edge.streams.followed_reports import FollowedReports, stored
from edge.streams.model import QueryForm, StreamOperator
from edge.streams.report import Report as MadeReport

TRIPLE = (ox.NamedNode("urn:a"), ox.NamedNode("urn:b"), ox.Literal('x"\x1b\n'))
ROW = (ox.NamedNode("urn:a"), ox.Literal("x\x1b[0m"))
CASES = {
    "SELECT": (QueryForm.SELECT, ("room", "t"), (ROW,), None),
    "SELECT without rows": (QueryForm.SELECT, ("room", "t"), (), None),
    "correction of SELECT": (QueryForm.SELECT, ("room", "t"), (ROW,), ((ROW[0], ox.Literal(1)),)),
    "correction that removes": (QueryForm.SELECT, ("room", "t"), (), (ROW,)),
    "ASK": (QueryForm.ASK, ("ask",), ((ox.Literal(True),),), None),
    "CONSTRUCT": (QueryForm.CONSTRUCT, ("s", "p", "o"), (TRIPLE,), None),
    "correction of CONSTRUCT": (QueryForm.CONSTRUCT, ("s", "p", "o"), (), (TRIPLE,)),
}


class Charge:
    def set(self, size, *, check=True): ...


def sent(form, variables, rows, removed):
    """Return a report as the gateway sends it."""
    made = MadeReport("q", 1, 1_800_000_000_000_000, form, variables, rows, removed)
    queue = FollowedReports("q", 0, StreamOperator.RSTREAM, 10_000, None, Charge(), lambda: None, lambda _: None)
    queue.put(stored(made))
    return json.loads(queue.take())["report"]


@pytest.mark.parametrize("case", CASES)
def test_the_json_is_that_of_the_gateway(case):
    report = sent(*CASES[case])
    assert message(Report.of(report)) == report


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        ("SELECT", ["  ?room    ?t", "  -------  --------", "  <urn:a>  x\\x1b[0m"]),
        ("SELECT without rows", ["  (no rows)"]),
        ("correction of SELECT", ["  ?room    ?t", "  -------  --------", "- <urn:a>  1", "+ <urn:a>  x\\x1b[0m"]),
        ("correction that removes", ["  ?room    ?t", "  -------  --------", "- <urn:a>  x\\x1b[0m"]),
        ("ASK", ["  true"]),
        ("CONSTRUCT", ['  <urn:a> <urn:b> "x\\"\\u001B\\n" .']),
        ("correction of CONSTRUCT", ['  <urn:a> <urn:b> "x\\"\\u001B\\n" <urn:edge:removed> .']),
    ],
)
def test_the_lines_have_no_control_characters(case, lines):
    head, *found = _report(message(Report.of(sent(*CASES[case]))))
    assert head == "#1  2027-01-15T08:00:00.000000Z" + (", correction" if "correction" in case else "")
    assert found == lines


def test_merged_and_missed_reports_are_in_the_first_line():
    report = Report("q", 9, datetime(2030, 1, 31, tzinfo=UTC), True, merged=3, missed=2)
    assert message(report)["missed"] == 2
    assert _report(message(report))[0] == "#9  2030-01-31T00:00:00.000000Z, merged from 3, 2 missed before"
