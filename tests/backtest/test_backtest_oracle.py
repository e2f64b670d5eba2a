"""A backtest of the stored values of a gateway equals the notifications, reports and situations of the gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_gateway import SECOND, START, Message, live_query, live_rule, live_windows

from edge.backtest.change import Change
from edge.backtest.program import Program, read_program
from edge.backtest.replay import replay, variables
from edge.backtest.stored_value import StoredValue
from edge.protocol.errors import EdgeError

PREFIXES = (
    "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
    "PREFIX time: <http://www.w3.org/2006/time#> PREFIX : <http://example.org/> "
    "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> "
)
QUERIES = (
    "SELECT ?o ?v { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 30) }",
    "SELECT ?v { ?o sosa:hasResult/qudt:numericValue ?v }",
    "SELECT ?o ?v ?t { ?o sosa:hasResult ?r . ?r qudt:numericValue ?v ; time:hasTime/time:inXSDDateTimeStamp ?t }",
    "SELECT ?p (AVG(?v) AS ?mean) (COUNT(?v) AS ?n) { ?o sosa:observedProperty ?p ; "
    "sosa:hasResult/qudt:numericValue ?v } GROUP BY ?p",
    "SELECT ?o { ?o sosa:observedProperty :temperature ; sosa:hasResult/qudt:numericValue ?v "
    "FILTER NOT EXISTS { ?o sosa:hasResult/qudt:numericValue ?w FILTER(?w > 20) } }",
    "SELECT ?place ?t ?h { ?a sosa:hasFeatureOfInterest ?place ; sosa:observedProperty :temperature ; "
    "sosa:hasResult/qudt:numericValue ?t . ?b sosa:hasFeatureOfInterest ?place ; sosa:observedProperty :humidity ; "
    "sosa:hasResult/qudt:numericValue ?h }",
    "ASK { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 30) }",
    "CONSTRUCT { ?place :warm ?v } { ?o sosa:hasFeatureOfInterest ?place ; sosa:hasResult/qudt:numericValue ?v }",
    "SELECT (MAX(?v) AS ?most) (GROUP_CONCAT(DISTINCT ?u) AS ?units) { ?o sosa:hasResult ?r . "
    "?r qudt:numericValue ?v OPTIONAL { ?r qudt:unit ?u } }",
)
REEVALUATED = (
    "SELECT ?o ?v { ?o sosa:hasResult/qudt:numericValue ?v } ORDER BY DESC(?v) ?o LIMIT 1",
    "SELECT ?v { ?o (sosa:hasResult|:absent)*/qudt:numericValue ?v }",
    "SELECT ?o ?v (NOW() AS ?now) { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 20) }",
    "DESCRIBE :a :temperature",
    "SELECT ?v (BOUND(?id) AS ?any) { ?o sosa:hasResult/qudt:numericValue ?v BIND(UUID() AS ?id) }",
)
WINDOWS = (
    "REGISTER RSTREAM <urn:edge:stream:q> AS SELECT ?o (COUNT(*) AS ?n) (MAX(?v) AS ?most) FROM NAMED WINDOW <urn:w> "
    "ON <urn:edge:stream:observations> [RANGE PT20S STEP PT5S] "
    "WHERE { WINDOW <urn:w> { ?o sosa:hasResult/qudt:numericValue ?v } } GROUP BY ?o",
    "REGISTER ISTREAM <urn:edge:stream:q> AS SELECT ?o ?v FROM NAMED WINDOW <urn:w> "
    "ON <urn:edge:stream:observations> [RANGE PT10S STEP PT10S] WHERE { "
    "WINDOW <urn:w> { ?o sosa:hasResult/qudt:numericValue ?v } ?o sosa:observedProperty :temperature }",
)
C_SPARQL = (
    "SELECT (AVG(?v) AS ?mean) FROM STREAM <urn:edge:stream:observations> [RANGE 15s STEP 3s] "
    "WHERE { ?o sosa:hasResult/qudt:numericValue ?v }"
)
RULES = (
    'property = ":temperature"\nsilent = "PT30S"',
    'property = ":temperature"\nabove = 25\nfor = "PT10S"\nend_for = "PT5S"',
    'observation = ":a-h"\nbelow = 20',
)

VALUES = st.sampled_from((19, 20.5, 30, 30.0, 31, 31.25, "1e1", "nothing"))
PAYLOADS = st.dictionaries(st.sampled_from(("t", "h")), VALUES, min_size=1)
WAITS = st.sampled_from((0, 1, 1_000, SECOND, 5 * SECOND, 10 * SECOND)) | st.integers(0, 40_000).map(
    lambda ms: ms * 1000
)
MESSAGES = st.lists(st.builds(Message, WAITS, st.sampled_from("ab"), PAYLOADS), min_size=1, max_size=12)


def bags(changes: Sequence[Change]) -> list[tuple[object, ...]]:
    """Return the changes with the bag of the rows of each notification or report, in order."""
    return [
        (*key, Counter(tuple(map(str, each.row)) for each in rows))
        for key, rows in groupby(changes, lambda each: (each.time, each.number, each.kind))
    ]


@given(st.sampled_from(QUERIES), MESSAGES, st.integers(0, 4))
@settings(max_examples=30)
def test_deltas_are_those_of_the_gateway(query: str, messages: list[Message], begin: int) -> None:
    expected, found = live_and_replayed(query, messages, begin)
    assert bags(found) == bags(expected)


@given(st.sampled_from(REEVALUATED), MESSAGES, st.integers(0, 4))
@settings(max_examples=20)
def test_results_of_reevaluated_queries_are_those_of_the_gateway(
    query: str, messages: list[Message], begin: int
) -> None:
    # A gateway evaluates them once for all readings of a message.
    expected, found = live_and_replayed(query, messages, begin)
    assert results(found) == results(expected)


def live_and_replayed(query: str, messages: list[Message], begin: int) -> tuple[list[Change], list[Change]]:
    """Return the deltas of the gateway and of the backtest, from the message with this index on."""
    begin = min(begin, len(messages) - 1)
    messages[begin] = messages[begin]._replace(wait=max(1, messages[begin].wait))
    stored, expected = live_query(PREFIXES + query, messages, begin)
    start = START + sum(each.wait for each in messages[: begin + 1])
    return expected, list(replay(read_program(PREFIXES + query), stored, start, start + 1000 * SECOND))


def results(changes: Sequence[Change]) -> list[tuple[int, Counter[tuple[str, ...]]]]:
    """Return the results to which the changes lead, with their times."""
    found: list[tuple[int, Counter[tuple[str, ...]]]] = []
    rows: Counter[tuple[str, ...]] = Counter()
    for time, some in groupby(changes, lambda each: each.time):
        before = rows.copy()
        for each in some:
            rows[tuple(map(str, each.row))] += 1 if each.kind == "added" else -1
        if rows != before:
            found.append((time, +rows))
    return found


@given(st.sampled_from(RULES), MESSAGES)
@settings(max_examples=12)
def test_situations_are_those_of_the_gateway(text: str, messages: list[Message]) -> None:
    # The rule's clock of the oracle ticks each second.
    messages = [each._replace(wait=each.wait // SECOND * SECOND) for each in messages]
    text = text.replace('":', '"http://example.org/')
    stored, expected = live_rule(text, messages, 60)
    end = START + sum(each.wait for each in messages) + 60 * SECOND + 1
    found = replay(read_program(text, "test", is_rule=True), stored, START, end)
    assert bags([each._replace(number=0) for each in found]) == bags(expected)


@given(st.sampled_from(WINDOWS), MESSAGES)
@settings(max_examples=6)
def test_reports_are_those_of_the_gateway(text: str, messages: list[Message]) -> None:
    stored, expected = live_windows("urn:edge:stream:q", PREFIXES + text, messages, 30)
    end = START + sum(each.wait for each in messages) + 30 * SECOND + 1
    found = replay(read_program(PREFIXES + text), stored, START, end)
    assert bags(list(found)) == bags(expected)


@given(MESSAGES, st.integers(0, 60))
@settings(max_examples=8)
def test_windows_that_begin_later_have_the_same_reports(messages: list[Message], seconds: int) -> None:
    stored = live_query("ASK {}", messages, 0)[0]
    begin, end = START + seconds * SECOND, START + 100 * SECOND
    program = read_program(PREFIXES + WINDOWS[0])
    found = [each._replace(number=0) for each in replay(program, stored, begin, end)]
    whole = [each._replace(number=0) for each in replay(program, stored, START, end) if each.time > begin]
    assert bags(found) == bags(whole)


def value(seconds: float, number: object, name: str = "a", datatype: str = "decimal") -> StoredValue:
    """Return a stored value at some seconds after the start."""
    return StoredValue(
        START + int(seconds * SECOND),
        f"http://example.org/{name}",
        str(number),
        "http://www.w3.org/2001/XMLSchema#" + datatype,
        property="http://example.org/temperature",
    )


def played(program: Program, *values: StoredValue, end: float = 1000, context: str = "") -> list[tuple[object, ...]]:
    """Return seconds, kind and values of the changes."""
    quads = ox.parse(PREFIXES + context, ox.RdfFormat.TURTLE)
    found = replay(program, values, START, START + int(end * SECOND), quads)
    return [
        ((each.time - START) / SECOND, each.kind, *(getattr(term, "value", term) for term in each.row))
        for each in found
    ]


HOT = read_program(PREFIXES + "SELECT ?v { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 30) }")


def test_the_last_value_before_the_begin_is_the_first_result() -> None:
    assert played(HOT, value(-500, 20), value(-90, 31), value(10, 1)) == [(0, "added", "31"), (10, "removed", "31")]
    assert played(HOT, value(-500, 31)) == [(0, "added", "31")]
    assert played(HOT) == []


def test_a_window_begins_with_the_values_before() -> None:
    program = read_program(PREFIXES + "REGISTER QUERY q AS " + C_SPARQL)
    assert program.lead == 15 * SECOND
    assert played(program, value(-20, 1), value(-14, 10), value(-2, 20), value(4, 30), end=7) == [
        (3, "reported", "20"),
        (6, "reported", "25"),
    ]


def test_values_in_a_window_keep_their_datatypes() -> None:
    program = read_program(PREFIXES + "REGISTER QUERY q AS " + C_SPARQL)
    assert played(program, value(-6, "1e1", datatype="double"), value(-3, "20"), end=4) == [(3, "reported", "15")]


def test_values_that_are_not_valid_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    program = read_program(PREFIXES + "REGISTER QUERY q AS " + C_SPARQL)
    values = value(-6, 10), value(-5, 99, "not an IRI"), value(1, 99, "nor this")
    assert played(program, *values, end=4) == [(3, "reported", "10")]
    assert "2 stored values are not valid RDF" in caplog.text
    assert "not an IRI" in caplog.text


def test_more_values_than_windows_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.backtest.past_values.MOST", 2)
    program = read_program(PREFIXES + "REGISTER QUERY q AS " + C_SPARQL)
    assert len(played(program, value(-20, 1), value(-3, 2), value(-2, 3), end=4)) == 1
    with pytest.raises(EdgeError, match="shorter window"):
        played(program, value(-4, 1), value(-3, 2), value(-2, 3), end=4)


def test_the_end_does_not_belong_to_the_period() -> None:
    assert played(HOT, value(999, 31), value(1000, 32)) == [(999, "added", "31")]
    reports = read_program(PREFIXES + "REGISTER QUERY q AS " + C_SPARQL)
    assert [each[0] for each in played(reports, value(1, 31), end=6)] == [3]
    silence = read_program('property = "http://example.org/temperature"\nsilent = "PT10S"', is_rule=True)
    assert played(silence, value(5, 31), end=15) == []
    assert [each[:2] for each in played(silence, value(5, 31), end=15.000_001)] == [(15, "began")]


def test_an_observation_of_the_context_that_a_rule_deletes_is_added_again() -> None:
    context = ":a a sosa:Observation ; sosa:observedProperty :temperature ; sosa:hasResult :r ."
    text = 'property = "http://example.org/temperature"\nabove = 30\nupdate = "DELETE WHERE { ?observation ?p ?o }"'
    values = value(5, 31), value(10, 20), value(20, 32)
    found = played(read_program(text, is_rule=True), *values, context=context)
    assert [each[:2] for each in found if each[1] == "began"] == [(5, "began"), (20, "began")]


def test_silence_is_found_after_the_last_value() -> None:
    program = read_program('property = "http://example.org/temperature"\nsilent = "PT10M"', is_rule=True)
    found = played(program, value(0, 1), value(100, 2), value(800, 3), end=2000)
    assert [each[:2] for each in found] == [(700, "began"), (800, "ended"), (1400, "began")]


def test_a_failed_update_of_a_rule_is_reported() -> None:
    text = 'property = "http://example.org/temperature"\nabove = 30\nupdate = "DROP GRAPH <urn:absent>"'
    assert played(read_program(text, is_rule=True), value(5, 31)) == [(5, "failed", None, None)]


def test_context_describes_observations_but_their_values_are_those_of_the_past() -> None:
    context = """
      :a a sosa:Observation ; rdfs:label "Cellar" ; sosa:hasResult :r . :r qudt:numericValue 99 ; time:hasTime :i .
      :i time:inXSDDateTimeStamp "2026-01-01T00:00:00Z" . :limit :is 0030 ."""
    program = read_program(
        PREFIXES + "SELECT ?label ?v { :limit :is 30 . ?o rdfs:label ?label ; sosa:hasResult/qudt:numericValue ?v }"
    )
    assert played(program, value(10, 31), context=context) == [(10, "added", "Cellar", "31")]


def test_a_text_that_the_engine_refuses_is_refused() -> None:
    for text in ("SELECT ?x {", "REGISTER QUERY q AS SELECT ?x FROM STREAM <urn:edge:stream:absent> [RANGE 1s] {}"):
        with pytest.raises(EdgeError):
            variables(read_program(text))
    with pytest.raises(EdgeError, match="above"):
        read_program('observation = "urn:a"\nabove = "high"', is_rule=True)


def test_variables_are_known_without_values() -> None:
    assert variables(HOT) == ("v",)
    assert variables(read_program(PREFIXES + WINDOWS[0])) == ("o", "n", "most")
    assert variables(read_program('observation = "urn:a"\nabove = 3', is_rule=True)) == ["observation", "value"]
