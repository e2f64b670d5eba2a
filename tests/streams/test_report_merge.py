"""Merging of the reports that wait for slow observers."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.results import results_to_json
from edge.streams.model import StreamOperator
from edge.streams.observer import StoredReport
from edge.streams.report_merge import bounded, merged

JSON = "application/sparql-results+json"
ISTREAM, DSTREAM, RSTREAM = StreamOperator.ISTREAM, StreamOperator.DSTREAM, StreamOperator.RSTREAM


def rows(number: int, *values: str) -> StoredReport:
    bindings = [{"x": {"type": "literal", "value": value}} for value in values]
    body = json.dumps({"head": {"vars": ["x"]}, "results": {"bindings": bindings}})
    return StoredReport(number, number * 1_000_000, JSON, body.encode())


def values(report: StoredReport) -> list[str]:
    return [row["x"]["value"] for row in json.loads(report.body)["results"]["bindings"]]


def test_reports_within_the_bound_stay_as_they_are() -> None:
    reports = [rows(number, "a") for number in (1, 2, 3)]
    assert bounded(reports, ISTREAM, 10_000) == (reports, 0)
    assert bounded([], ISTREAM, 0) == ([], 0)
    assert bounded(reports[:1], RSTREAM, 0) == (reports[:1], 0)


def test_the_newest_result_replaces_older_ones_of_rstream() -> None:
    reports = [rows(1, "a"), rows(2, "b"), rows(3, "c")._replace(merged=2), rows(5, "d")]
    assert bounded(reports, RSTREAM, 300) == ([reports[0], reports[3]._replace(merged=4)], 0)
    assert bounded(reports, RSTREAM, 100) == ([reports[3]._replace(merged=5)], 0)


@pytest.mark.parametrize("operator", [ISTREAM, DSTREAM])
def test_rows_are_added_up_as_bags(operator: StreamOperator) -> None:
    reports = [rows(number, "a", f"v{number}") for number in range(1, 31)]
    size = sum(len(report.body) for report in reports)
    kept, lost = bounded(reports, operator, size - 1)
    assert lost == 0
    assert kept[0] == reports[0]
    assert len(kept) < len(reports)
    assert sum(report.merged for report in kept) == 30
    assert Counter(value for report in kept for value in values(report)) == Counter(
        value for report in reports for value in values(report)
    )
    assert [value for report in kept for value in values(report) if value != "a"] == [f"v{n}" for n in range(1, 31)]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(0, 3_000))
def test_merging_keeps_the_order_and_counts_dropped_reports(lengths: list[int], most: int) -> None:
    reports = [rows(number, "x" * length) for number, length in enumerate(lengths, 1)]
    kept, lost = bounded(reports, ISTREAM, most)
    assert kept[-1].number == len(reports)
    # Numbers that a report covers follow those of the report before.
    assert [later.number - later.merged - earlier.number for earlier, later in pairwise(kept)] == [0] * (len(kept) - 1)
    assert kept[0].number - kept[0].merged == lost
    assert len(kept) == 1 or sum(len(report.body) for report in kept) <= most


def test_a_queue_that_is_bounded_after_each_report_loses_only_the_oldest() -> None:
    waiting: list[StoredReport] = []
    lost = 0
    for number in range(1, 501):
        waiting, more = bounded([*waiting, rows(number, str(number))], ISTREAM, 4_000)
        lost += more
    kept = [int(value) for report in waiting for value in values(report)]
    assert kept == list(range(lost + 1, 501))
    assert len(kept) > 50  # most of the bound is in use


def test_the_next_report_of_each_observer_stays_as_it_is() -> None:
    reports = [rows(number, str(number)) for number in range(1, 13)]
    size = sum(len(report.body) for report in reports)
    replaced, lost = bounded(reports, RSTREAM, size - 1, [0, 4, 4, 7, 12, 99])
    assert [(report.number, report.merged) for report in replaced] == [(1, 1), (5, 4), (8, 3), (12, 4)]
    assert lost == 0
    reports = [rows(number, str(number)) for number in range(1, 101)]
    added, lost = bounded(reports, ISTREAM, sum(len(report.body) for report in reports) - 1, [0, 40, 70])
    assert {1, 41, 71} <= {report.number for report in added if report.merged == 1}
    assert (lost, len(added) < 30) == (0, True)
    assert [later.number - later.merged for later in added] == [0, *(report.number for report in added[:-1])]


def test_corrections_of_the_newest_result_stay() -> None:
    def correction(number: int, of: int) -> StoredReport:
        return rows(number, "c")._replace(time=of * 1_000_000, correction=True)

    reports = [rows(1, "a"), rows(2, "b"), correction(3, 1), rows(4, "c"), correction(5, 2), correction(6, 4)]
    kept, _ = bounded(reports, RSTREAM, 300)
    assert [(report.number, report.merged) for report in kept] == [(1, 1), (4, 3), (6, 2)]
    kept, _ = bounded([*reports, correction(7, 1)], RSTREAM, 400)
    assert [(report.number, report.merged) for report in kept] == [(1, 1), (4, 3), (6, 2), (7, 1)]
    only = [correction(number, 1) for number in range(1, 5)]
    assert bounded(only, RSTREAM, 200) == (only[2:], 2)


def test_corrections_are_not_added_up_with_rows() -> None:
    reports = [rows(number, "a" * 9) for number in range(1, 60)]
    reports[30] = reports[30]._replace(correction=True, body=b'{"results":{"bindings":[]},"removed":{}}')
    kept, lost = bounded(reports, ISTREAM, sum(len(report.body) for report in reports) - 1)
    assert reports[30] in kept
    assert lost == 0
    assert len(kept) < 30


TURTLE = "text/turtle"


def test_triples_are_added_up_as_sets_with_separate_blank_nodes() -> None:
    first = StoredReport(1, 1, TURTLE, b"<urn:a> <urn:p> 1 . _:b <urn:p> 2 .")
    second = StoredReport(2, 2, TURTLE, b"<urn:a> <urn:p> 1 . _:b <urn:p> 3 .")
    both = merged(first, second)
    triples = [quad.triple for quad in ox.parse(both.body, format=ox.RdfFormat.TURTLE)]
    assert (both.number, both.time, both.merged, len(triples)) == (2, 2, 2, 3)
    assert len({triple.subject for triple in triples}) == 3


def test_named_graphs_survive_merging() -> None:
    first = StoredReport(1, 1, "application/n-quads", b"<urn:a> <urn:p> <urn:b> <urn:g> .\n")
    second = StoredReport(2, 2, "application/n-quads", b"<urn:a> <urn:p> <urn:b> .\n")
    assert sorted(merged(first, second).body.splitlines()) == sorted([first.body.strip(), second.body.strip()])


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{"head": {}, "boolean": true}'),
        (JSON, b"{"),
        (JSON, b"[]"),
        (JSON, b'{"results": 1}'),
        (JSON, b'{"results": {"bindings": {}}}'),
        (JSON, b"\xff"),
        ("text/turtle", b"<<"),
        ("image/png", b"x"),
        ("", b""),
    ],
)
def test_results_that_cannot_be_added_up_are_replaced(content_type: str, body: bytes) -> None:
    earlier, later = rows(1, "a"), StoredReport(2, 2, content_type, body)
    assert merged(earlier, later) == later._replace(merged=2)
    assert merged(later._replace(number=1), later).body == body


TRICKY = ["", "a", '"results":{"bindings":[', "]}}", ']},"removed":{"bindings":[', '{"x":1},', "\\", "é\n"]


@given(
    st.lists(st.lists(st.sampled_from(TRICKY), max_size=4), min_size=2, max_size=2),
    st.sampled_from([("x",), ("removed",), ("x", "bindings")]),
)
def test_the_text_of_own_results_is_joined_without_parsing(
    contents: list[list[str]], variables: tuple[str, ...]
) -> None:
    rest = (None,) * (len(variables) - 1)
    bodies = [results_to_json(variables, [(ox.Literal(value), *rest) for value in values]) for values in contents]
    both = merged(*(StoredReport(number, 0, JSON, body.encode()) for number, body in enumerate(bodies, 1)))
    parsed = [json.loads(body) for body in bodies]
    assert json.loads(both.body) == {
        "head": {"vars": list(variables)},
        "results": {"bindings": [row for result in parsed for row in result["results"]["bindings"]]},
    }
    assert both.merged == 2


def test_results_with_other_variables_are_parsed() -> None:
    bodies = [results_to_json((name,), [(ox.Literal("a"),)]) for name in ("x", "y")]
    both = merged(*(StoredReport(number, 0, JSON, body.encode()) for number, body in enumerate(bodies, 1)))
    assert [set(row) for row in json.loads(both.body)["results"]["bindings"]] == [{"x"}, {"y"}]
