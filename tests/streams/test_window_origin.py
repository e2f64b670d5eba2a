"""The window origin: time windows without START are aligned to it, and begin again when it changes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyoxigraph as ox
import pytest
from processor_oracle import Arrival, Question, reports_of
from pydantic import ValidationError

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.streams.model import Element, NamedWindow, ReportPolicy, StreamOperator, WindowDefinition, WindowKind
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
BEGIN = 1_000_000
STREAM = "urn:edge:stream:s"
SPARQL = "SELECT ?s ?v WHERE { GRAPH <urn:w> { ?s <urn:v> ?v } }"
REPORTS = {
    "": (ReportPolicy.CLOSE, 0),
    "NON EMPTY": (ReportPolicy.NON_EMPTY, 0),
    "ON CHANGE": (ReportPolicy.CHANGE, 0),
    "EVERY PT4S": (ReportPolicy.PERIODIC, 4 * SECOND),
}
ELEMENTS = (1, 2, 2, 5, 9, 14, 15, 30)
"""Times after the begin, and values."""


class NoLiveData:
    def follow(self, *_):
        return (), lambda: None


def text_of(second):
    return datetime.fromtimestamp(second, UTC).isoformat()


def processor(origin, store=None):
    return Processor(
        StreamSettings(window_origin=origin),
        store or StreamStore(None),
        lambda: make_engine(EngineSettings()),
        NoLiveData(),
        lambda access: access,
    )


def query(brackets, report="", operator="RSTREAM", name="q"):
    return (
        f"REGISTER {operator} <urn:edge:stream:{name}> AS SELECT ?s ?v FROM NAMED WINDOW <urn:w> ON <{STREAM}> "
        f"{brackets} {report} WHERE {{ WINDOW <urn:w> {{ ?s <urn:v> ?v }} }}"
    )


def triple(value):
    return ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:v"), ox.Literal(value))


def reported(made, text, end=40):
    """Return (time in seconds, rows) of the reports of a query on the elements."""
    made.advance(BEGIN * SECOND)
    made.put_stream("s", None, ANYBODY)
    made.register("q", text, ANYBODY, BEGIN * SECOND)
    for value in ELEMENTS:
        made.advance((BEGIN + value) * SECOND)
        made.add("s", [NewElement((triple(value),))], ANYBODY, (BEGIN + value) * SECOND)
    made.advance((BEGIN + end) * SECOND)
    reports = made.store_reports()
    made.close()
    return [(each.time / SECOND, Counter(tuple(map(str, row)) for row in each.rows)) for each in reports]


def expected(definition, operator, end=40):
    arrivals = [
        Arrival(STREAM, Element(BEGIN + value, number, (triple(value),)), BEGIN + value)
        for number, value in enumerate(ELEMENTS, 1)
    ]
    question = Question(SPARQL, StreamOperator(operator), (NamedWindow("urn:w", definition),), BEGIN, True)
    return reports_of(question, arrivals, 0, lambda _time, _turn: (), BEGIN + end)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("step", range(1, 7))
def test_windows_are_those_of_the_oracle_at_every_alignment(step, report):
    policy, period = REPORTS[report]
    for offset in range(period // SECOND or step):
        for size, operator in ((3, "RSTREAM"), (7, "ISTREAM")):
            window = WindowDefinition(
                STREAM, WindowKind.TIME, size * SECOND, step * SECOND, offset * SECOND, policy, period
            )
            found = reported(processor(text_of(offset)), query(f"[RANGE PT{size}S STEP PT{step}S]", report, operator))
            assert found == expected(window, operator), (size, offset)


@pytest.mark.parametrize("origin", ["1970-01-01T00:00:00.25Z", "2400-02-29T00:00:00.25Z", "0001-01-01T00:00:00.25Z"])
def test_an_origin_can_be_long_ago_or_in_the_future_and_between_seconds(origin):
    times = [time for time, _ in reported(processor(origin), query("[RANGE PT5S STEP PT1S]"), end=4)]
    assert times == [BEGIN + 0.25 + second for second in range(30)]


def test_start_of_a_window_is_stronger_than_the_origin():
    start = f'[RANGE PT5S STEP PT5S START "{text_of(2)}"]'
    assert [time % 5 for time, _ in reported(processor(text_of(1)), query(start))] == [2] * 8


def test_other_windows_do_not_depend_on_the_origin():
    for brackets in ("[ELEMENTS 2 STEP 2]", "[SESSION PT3S]", "[ELEMENTS 3]", f'[LANDMARK "{text_of(3)}" STEP PT5S]'):
        text = query(brackets)
        assert reported(processor(text_of(1)), text) == reported(processor(text_of(0)), text)


def test_an_explanation_has_the_origin():
    made = processor("2020-01-01T06:00:00+01:00")
    made.put_stream("s", None, ANYBODY)
    windows, _ = made.explain(query("[RANGE PT5S STEP PT5S]"), ANYBODY, BEGIN * SECOND)
    assert "one of its ends is 2020-01-01T05:00:00Z" in windows
    made.close()


def started(directory, origin, now):
    store = StreamStore(directory)
    made = processor(origin, store)
    made.restore(now * SECOND)
    return made, store


def ended(made, store):
    reports = made.store_reports()
    made.close()
    store.close()
    return [(each.time // SECOND - BEGIN, sorted(int(row[1].value) for row in each.rows)) for each in reports]


def test_after_a_change_of_the_origin_windows_begin_again_and_stay_so(tmp_path):
    made, store = started(tmp_path, text_of(0), BEGIN)
    made.put_stream("s", None, ANYBODY)
    made.register("q", query("[RANGE PT10S STEP PT5S]"), ANYBODY, BEGIN * SECOND)
    made.register("n", query("[RANGE PT10S STEP PT5S]", operator="ISTREAM", name="n"), ANYBODY, BEGIN * SECOND)
    made.add("s", [NewElement((triple(1),))], ANYBODY, (BEGIN + 1) * SECOND)
    made.advance((BEGIN + 6) * SECOND)
    assert ended(made, store) == [(5, [1]), (5, [1])]
    made, store = started(tmp_path, text_of(2), BEGIN + 6)
    made.add("s", [NewElement((triple(6),))], ANYBODY, (BEGIN + 6) * SECOND)
    made.advance((BEGIN + 8) * SECOND)
    assert ended(made, store) == [(7, [6]), (7, [6])]
    made, store = started(tmp_path, text_of(2), BEGIN + 8)
    made.advance((BEGIN + 12) * SECOND)
    assert ended(made, store) == [(12, [6])]
    made, store = started(tmp_path, text_of(0), BEGIN + 12)
    assert all(query.state == "running" for query in made.all_queries())
    made.advance((BEGIN + 15) * SECOND)
    assert ended(made, store) == [(15, [])]


@pytest.mark.parametrize("value", ["", "noon", "2020-01-01", "2020-01-01T00:00:00", "1800000000000000", "-5", 7, None])
def test_an_origin_is_a_time_with_a_time_zone(value):
    with pytest.raises(ValidationError):
        StreamSettings(window_origin=value)


def test_a_date_time_of_toml_is_an_origin():
    assert StreamSettings(window_origin=datetime(1970, 1, 1, 0, 0, 7, 500_000, UTC)).origin == 7_500_000
