"""The dry run of a rule equals what the rule does live."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_world import SECOND, START, RuleWorld, logging, rule

from edge.automation.dry_run import DryRunResult, PastValue, dry_run_rule
from edge.automation.settings import AutomationSettings
from edge.engine.requests import UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import InvalidRequest, NotReady


@pytest.fixture
def box():
    box = RuleWorld(None)
    for name in ("a", "b"):
        box.observe(name, 20)
    yield box
    box.stop()


def tried(
    box: RuleWorld, text: str, *values: tuple[float, str, bool | float | str], end: float = 10_000
) -> DryRunResult:
    """The dry run of a rule with values given as seconds, name and value."""
    past = [PastValue(START + int(at * SECOND), f"urn:{name}", "", value) for at, name, value in values]

    end_at = START + int(end * SECOND)
    graph = box.engine._engine.graph
    return dry_run_rule(graph, rule(text), past, START, end_at, EngineSettings(), AutomationSettings())


def times(result: DryRunResult) -> list[tuple[float, float | None]]:
    return [
        ((each.began - START) / SECOND, each.ended and (each.ended - START) / SECOND) for each in result.occurrences
    ]


def test_a_threshold_is_tried_on_past_values(box):
    text = 'property = "urn:p"\nabove = 30\nfor = "PT60S"'
    result = tried(
        box, text, (0, "a", 31), (30, "a", 10), (100, "a", 31), (150, "b", 31), (200, "a", 30.5), (500, "a", 1)
    )
    assert times(result) == [(160, 500), (210, None)]
    assert result.values == 6
    assert [each.solution["observation"] for each in result.occurrences] == ["urn:a", "urn:b"]
    assert box.active() == []  # the gateway itself did nothing
    assert box.ask("SELECT ?v { <urn:a/r> <http://qudt.org/1.1/schema/qudt#numericValue> ?v }") == ["20"]


def test_a_silence_is_tried(box):
    result = tried(box, 'observation = "urn:a"\nsilent = "PT10M"', (0, "a", 1), (500, "a", 1), (1200, "a", 1), end=1900)
    assert times(result) == [(1100, 1200), (1800, None)]


def test_a_rule_is_tried_with_its_updates(box):
    text = (
        'query = "SELECT ?o { ?o sosa:hasResult/<http://qudt.org/1.1/schema/qudt#numericValue> ?v FILTER(?v > 30)'
        ' FILTER NOT EXISTS { ?o <urn:done> true } }"\n'
        'update = "INSERT { ?o <urn:done> true } WHERE {}"'
    )
    result = tried(box, text, (0, "a", 31), (10, "a", 1), (20, "a", 31))
    assert times(result) == [(0, 0)]


def test_a_query_that_is_evaluated_again_is_tried_in_time(box):
    text = (
        'query = "SELECT ?o { ?o sosa:hasResult/<http://qudt.org/1.1/schema/qudt#numericValue> ?v }'
        ' ORDER BY DESC(?v) ?o LIMIT 1"\n'
        'for = "PT5S"\nupdate = "INSERT { ?o <urn:most> true } WHERE {}"'
    )
    result = tried(box, text, (10, "a", 31), (100, "b", 35), (200, "a", 40), (203, "a", 1), (300, "a", 50))
    assert times(result) == [(15, 100), (105, 200), (208, 300), (305, None)]


def test_a_failing_update_is_reported(box):
    result = tried(box, 'property = "urn:p"\nabove = 30\nupdate = "DROP GRAPH <urn:absent>"', (0, "a", 31))
    assert (times(result), result.failures) == ([], 1)
    assert "urn:absent" in result.failure


def test_a_query_that_cannot_be_followed_is_refused(box):
    with pytest.raises(InvalidRequest, match="SERVICE"):
        tried(box, 'query = "SELECT ?s { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }"')


def test_values_keep_their_datatype_and_graph(box):
    box.update("INSERT DATA { GRAPH <urn:g> { <urn:c> <http://www.w3.org/ns/sosa/hasResult> <urn:c/r> } }")
    box.observe("door", False)
    box.observe("mode", "auto")
    for text, value in (("equals = true", True), ("equals = 'manual'", "manual")):
        name = "door" if value is True else "mode"
        assert times(tried(box, f'observation = "urn:{name}"\n{text}', (5, name, value))) == [(5, None)]
    text = 'query = "SELECT ?v { GRAPH <urn:g> { ?r <http://qudt.org/1.1/schema/qudt#numericValue> ?v } }"'
    past = [PastValue(START, "urn:c", "urn:g", 3.5)]
    end = START + SECOND
    result = dry_run_rule(
        box.engine._engine.graph, rule(text), past, START, end, EngineSettings(), AutomationSettings()
    )
    assert [each.solution for each in result.occurrences] == [{"v": "3.5"}]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Scheduler]:
    """The engines of all dry runs."""
    opened: list[Scheduler] = []

    def opening(*given: object, **options: object) -> Scheduler:
        opened.append(open_engine(*given, **options))
        return opened[-1]

    monkeypatch.setattr("edge.automation.dry_run.open_engine", opening)
    return opened


@pytest.mark.parametrize(
    "text",
    [
        'property = "urn:p"\nabove = 30\nfor = "PT60S"\nupdate = "INSERT { ?observation <urn:hot> true } WHERE {}"',
        'query = "SELECT ?s { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }"',
    ],
    ids=["result", "refused"],
)
def test_a_dry_run_leaves_nothing_open(box, engines, text):
    with suppress(InvalidRequest):
        tried(box, text, (0, "a", 31), end=30)  # the situation has not begun yet: its timer waits
    (engine,) = engines
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        engine._journal._connection.execute("SELECT 1")
    assert not engine._queue.open


def test_an_engine_without_a_thread_refuses_waiting_requests_when_it_is_closed():
    engine = open_engine(None, EngineSettings(), start=False)
    waiting = engine.update([UpdateRequest("INSERT DATA { <urn:s> <urn:p> 1 }")])
    assert engine.close()
    with pytest.raises(NotReady):
        waiting.result(0)
    assert engine.close()


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from("ab"), st.integers(0, 1)), max_size=15),
    st.sampled_from([0, 45, 115]),
    st.sampled_from([0, 45, 115]),
)
def test_a_dry_run_equals_the_rule_itself(steps, lasts, end):
    text = f'property = "urn:p"\nabove = 30\nfor = "PT{lasts}S"\nend_for = "PT{end}S"\n'
    live = RuleWorld(None, rule(text + f"update = '{logging('began')}'\nend_update = '{logging('ended')}'"))
    try:
        for name in ("a", "b"):
            live.observe(name, 1)
        past, now = [], 0
        for wait, name, hot in steps:
            for _ in range(wait * 2):
                live.advance(5)
            now += wait * 10
            past.append((now, name, 40 if hot else 10))
            live.observe(name, 40 if hot else 10)
        result = times(tried(live, text, *past, end=now))
        assert sorted(began for began, _ in result) == live.log("began")
        assert sorted(ended for _, ended in result if ended) == live.log("ended")
    finally:
        live.stop()


def test_a_rule_that_is_switched_off_is_tried_nevertheless(box):
    assert times(tried(box, 'property = "urn:p"\nabove = 30\nenabled = false', (5, "a", 31))) == [(5, None)]
