"""Any order of arrival within the lateness gives the same results, and a clock that jumps stops nothing for long."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ANYBODY
from edge.streams.processor import NewElement, Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore

SECOND = 1_000_000
BEGIN = 1_000_000 * SECOND
HOUR = 3_600 * SECOND
YEAR = 365 * 24 * HOUR
WINDOWS = {
    "time": "[RANGE PT6S STEP PT2S]",
    "landmark": '[LANDMARK "1970-01-12T13:46:41Z" STEP PT3S]',
    "session": "[SESSION PT3S]",
}
elements = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=8)


class NoLiveData:
    def follow(self, sparql, access, changed, failed):
        return [], lambda: None


def make(lateness=0, begin=BEGIN, store=None, restored=None, **options):
    engine = partial(make_engine, EngineSettings())
    settings = StreamSettings(max_lateness=lateness)
    processor = Processor(settings, store or StreamStore(None), engine, NoLiveData(), lambda access: access, **options)
    if restored is not None:
        processor.restore(restored)
        return processor
    processor.advance(begin)
    processor.put_stream("s", None, ANYBODY)
    return processor


def query(window, operator="RSTREAM", name="q", body="?s <urn:v> ?v", select="SELECT (COUNT(*) AS ?n) (MAX(?v) AS ?m)"):
    return (
        f"REGISTER {operator} <urn:edge:stream:{name}> AS {select} "
        f"FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> {window} "
        f"WHERE {{ WINDOW <urn:w> {{ {body} }} }}"
    )


def triple(value, subject="a"):
    return (ox.Triple(ox.NamedNode(f"urn:{subject}"), ox.NamedNode("urn:v"), ox.Literal(value)),)


def results(text, arrivals):
    """Return the sum of each report and its corrections.

    `arrivals`: time and value of each element, and the time of its arrival.
    """
    processor = make(20)
    processor.register("q", text, ANYBODY, BEGIN)
    for time, value, now in arrivals:
        processor.advance(BEGIN + now * SECOND)
        processor.add("s", [NewElement(triple(value), BEGIN + time * SECOND)], ANYBODY, BEGIN + now * SECOND)
    processor.advance(BEGIN + 40 * SECOND)
    found: dict[int, Counter] = {}
    for report in processor.store_reports():
        rows = found.setdefault((report.time - BEGIN) // SECOND, Counter())
        rows.update(report.rows)
        rows.subtract(report.removed or ())
    processor.close()
    assert not any(count < 0 for rows in found.values() for count in rows.values())
    return {time: +rows for time, rows in found.items() if +rows}


@pytest.mark.parametrize("operator", ["RSTREAM", "ISTREAM", "DSTREAM"])
@pytest.mark.parametrize("window", WINDOWS)
def test_any_order_of_arrival_gives_the_same_results(window, operator):
    text = query(WINDOWS[window], operator)

    @given(elements, st.randoms(use_true_random=False))
    def check(elements, rng):
        in_order = [(time, value, time) for time, value in sorted(elements)]
        mixed = rng.sample(elements, len(elements))
        nows = sorted(rng.randint(12, 18) for _ in mixed)
        late = [(time, value, now) for (time, value), now in zip(mixed, nows, strict=True)]
        assert results(text, late) == results(text, in_order)

    check()


def test_a_jump_of_years_leaves_out_reports_of_empty_windows():
    processor = make()
    processor.register("q", query("[RANGE PT1S STEP PT1S]"), ANYBODY, BEGIN)
    assert processor.advance(BEGIN + 50 * YEAR)
    assert not processor.store_reports()
    assert processor.query("q", ANYBODY).skipped == 50 * YEAR // SECOND
    processor.close()


def test_a_jump_of_years_is_done_in_turns_of_bounded_work():
    """A landmark window keeps its content, so all its reports are made, but requests come in between."""
    processor = make()
    processor.register("q", query('[LANDMARK "1970-01-12T13:46:40Z" STEP PT1S]'), ANYBODY, BEGIN)
    processor.add("s", [NewElement(triple(1), BEGIN)], ANYBODY, BEGIN)
    turns = 0
    while turns < 5:
        assert not processor.advance(BEGIN + YEAR)
        turns += 1
        assert len(processor.store_reports()) <= 1_000
        assert processor.due() <= BEGIN + YEAR
    # A request that comes meanwhile is served.
    assert processor.add("s", [NewElement(triple(2), BEGIN + YEAR)], ANYBODY, BEGIN + YEAR).elements == 1
    processor.register("r", query("[RANGE PT1S STEP PT1S]", name="r"), ANYBODY, BEGIN + YEAR)
    processor.close()


def test_a_clock_that_was_set_back_is_reported_once(caplog):
    processor = make()
    processor.register("q", query("[RANGE PT2S STEP PT1S]"), ANYBODY, BEGIN)
    with caplog.at_level(logging.WARNING):
        for now in (BEGIN - 3 * HOUR, BEGIN - 2 * HOUR, BEGIN - HOUR):
            processor.advance(now)
            assert "was set back by" in processor.problem
    assert [record.message for record in caplog.records] == ["streams.clock_set_back"]
    # An element without a time has that of the windows, and is in the next report.
    processor.add("s", [NewElement(triple(1))], ANYBODY, BEGIN - HOUR)
    processor.advance(BEGIN + SECOND)
    assert not processor.problem
    assert [report.rows[0][0].value for report in processor.store_reports()] == ["1"]
    processor.close()


def test_a_small_step_back_is_no_problem():
    processor = make()
    processor.advance(BEGIN - 2 * SECOND)
    assert not processor.problem
    processor.close()
