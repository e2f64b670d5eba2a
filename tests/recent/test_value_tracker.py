"""Tracker of values: whatever the updates, it records what the graph has after each of them."""

from __future__ import annotations

import random

import pyoxigraph as ox
import pytest

from edge.engine.engine import Engine
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.query_processor import collect
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.recent.buffer import SampleBuffer
from edge.recent.series import MICROSECONDS, SeriesKey
from edge.recent.value_tracker import ValueTracker, relevant

PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""
NOW = 1_700_000_000_000_000
STATE = (
    PREFIXES
    + """SELECT ?g ?o ?value ?stamp {
  { GRAPH ?g { ?o sosa:hasResult ?q . ?q qudt:numericValue ?value
    OPTIONAL { ?q time:hasTime/time:inXSDDateTimeStamp ?stamp } } }
  UNION { ?o sosa:hasResult ?q . ?q qudt:numericValue ?value
    OPTIONAL { ?q time:hasTime/time:inXSDDateTimeStamp ?stamp } } }"""
)


class TrackedEngine:
    """An engine whose changes a tracker sees."""

    def __init__(self):
        self.engine = Engine(QueryRules(), lambda document: [])
        self.tracker = ValueTracker()
        self.buffer = SampleBuffer()
        self.now = NOW

    def update(self, text):
        self.now += 1_000_000
        executed = self.engine.execute([self.engine.prepare(UpdateRequest(PREFIXES + text))], self.now)
        self.engine.show(executed)
        self.engine.publish(executed)
        for step in executed:
            if (change := relevant(step.changes)) is not None:
                self.tracker.apply(change, self.now, self.buffer)

    def state(self):
        """Return the values and times of all observations, by graph and observation."""
        result = self.engine.queries.run(self.engine.queries.question(QueryRequest(STATE)), collect, self.now)
        return {
            ("" if graph is None else graph.value, observation.value): (value, stamp)
            for graph, observation, value, stamp in result.rows
        }

    def samples(self):
        return {key: list(zip(series.times, series.values, strict=True)) for key, series in self.buffer.series.items()}


@pytest.fixture
def tracked():
    return TrackedEngine()


def key(name="o", graph="", kind="number"):
    return SeriesKey(graph, f"urn:{name}", kind)


def ticks(now):
    return now // MICROSECONDS


def test_a_value_without_time_has_the_time_of_its_commit(tracked):
    tracked.update("INSERT DATA { <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1.5 }")
    first = tracked.now
    tracked.update(
        "DELETE { ?q qudt:numericValue ?v } INSERT { ?q qudt:numericValue 2 } WHERE { ?q qudt:numericValue ?v }"
    )
    assert tracked.samples() == {key(): [(ticks(first), 1.5), (ticks(tracked.now), 2)]}


def test_the_same_value_at_a_new_time_is_recorded(tracked):
    tracked.update("""INSERT DATA { <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 ;
      time:hasTime <urn:i> . <urn:i> time:inXSDDateTimeStamp "2026-01-01T00:00:00Z"^^xsd:dateTimeStamp }""")
    tracked.update("""DELETE { ?i time:inXSDDateTimeStamp ?t }
      INSERT { ?i time:inXSDDateTimeStamp "2026-01-01T00:00:01.55Z"^^xsd:dateTimeStamp }
      WHERE { ?i time:inXSDDateTimeStamp ?t }""")
    begin = 1_767_225_600 * 100
    assert tracked.samples() == {key(): [(begin, 1), (begin + 155, 1)]}


def test_different_values_of_one_time_are_all_recorded(tracked):
    tracked.update("""INSERT DATA { <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 ;
      time:hasTime <urn:i> . <urn:i> time:inXSDDateTimeStamp "2026-01-01T00:00:00.001Z"^^xsd:dateTimeStamp }""")
    for value, millisecond in ((2, 1), (2, 2), (2, 2), (3, 2)):
        tracked.update(f"""DELETE {{ ?q qudt:numericValue ?v . ?i time:inXSDDateTimeStamp ?t }}
          INSERT {{ ?q qudt:numericValue {value} .
            ?i time:inXSDDateTimeStamp "2026-01-01T00:00:00.00{millisecond}Z"^^xsd:dateTimeStamp }}
          WHERE {{ ?q qudt:numericValue ?v ; time:hasTime ?i . ?i time:inXSDDateTimeStamp ?t }}""")
    # The second of the two equal updates changes nothing: it is a message that was delivered twice.
    assert [value for _, value in tracked.samples()[key()]] == [1, 2, 2, 3]


@pytest.mark.parametrize("stamp", ["1969-12-31T00:00:00Z", "2150-01-01T00:00:00Z", "yesterday", "2026-01-01T00:00:00"])
def test_an_impossible_time_is_replaced_by_that_of_the_commit(tracked, stamp):
    tracked.update(f"""INSERT DATA {{ <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 ;
      time:hasTime <urn:i> . <urn:i> time:inXSDDateTimeStamp "{stamp}" }}""")
    assert tracked.samples() == {key(): [(ticks(tracked.now), 1)]}


@pytest.mark.parametrize(
    ("value", "kind", "number"),
    [("true", "boolean", 1), ("1e3", "number", 1000), ('"7"^^xsd:long', "number", 7), ('"on"', "text", 0)],
)
def test_numbers_booleans_and_texts_are_recorded(tracked, value, kind, number):
    tracked.update(f"INSERT DATA {{ <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue {value} }}")
    assert tracked.samples() == {key(kind=kind): [(ticks(tracked.now), number)]}


@pytest.mark.parametrize("value", ['"INF"^^xsd:double', '"NaN"^^xsd:double', f'"{"x" * 300}"'])
def test_values_that_cannot_be_recorded_are_counted(tracked, value):
    tracked.update(f"INSERT DATA {{ <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue {value} }}")
    assert tracked.samples() == {}
    assert tracked.tracker.skipped == 1


def test_a_series_with_too_many_texts_is_not_an_enumeration(tracked):
    for number in range(300):
        tracked.update(f"""DELETE {{ <urn:q> qudt:numericValue ?v }}
          INSERT {{ <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue "text {number}" }}
          WHERE {{ OPTIONAL {{ <urn:q> qudt:numericValue ?v }} }}""")
    assert tracked.tracker.skipped == 300 - 256


def test_links_of_another_graph_do_not_count(tracked):
    tracked.update("""INSERT DATA { <urn:o> sosa:hasResult <urn:q> . GRAPH <urn:g> { <urn:q> qudt:numericValue 1 } }""")
    assert tracked.samples() == {}


def test_a_scan_finds_the_links_of_a_restored_graph(tracked):
    tracked.update("""INSERT DATA { GRAPH <urn:g> { <urn:o> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 ;
      time:hasTime <urn:i> . <urn:i> time:inXSDDateTimeStamp "2026-01-01T00:00:00Z"^^xsd:dateTimeStamp } }""")
    tracked.tracker, tracked.buffer = ValueTracker(), SampleBuffer()
    tracked.tracker.scan(tracked.engine.graph)
    tracked.update("""WITH <urn:g> DELETE { ?i time:inXSDDateTimeStamp ?t }
      INSERT { ?i time:inXSDDateTimeStamp "2026-01-01T00:00:01Z"^^xsd:dateTimeStamp }
      WHERE { ?i time:inXSDDateTimeStamp ?t }""")
    assert tracked.samples() == {key(graph="urn:g"): [((1_767_225_600 + 1) * 100, 1)]}


def test_graphs_that_are_gone_are_forgotten(tracked):
    for number in range(20):
        tracked.update(f"""INSERT DATA {{ GRAPH <urn:g{number}> {{ <urn:o> sosa:hasResult <urn:q> .
          <urn:q> qudt:numericValue 1 ; time:hasTime <urn:i> . <urn:i> time:inXSDDateTimeStamp "now" }} }}""")
        tracked.update(f"DROP GRAPH <urn:g{number}>")
        tracked.update(f"INSERT DATA {{ GRAPH <urn:h{number}> {{ <urn:i> time:inXSDDateTimeStamp 'now' }} }}")
    assert tracked.tracker._graphs == {}
    assert len(tracked.samples()) == 20


def test_the_work_for_a_value_is_bounded(tracked):
    links = " ".join(f"<urn:o{number}> sosa:hasResult <urn:q> ." for number in range(3000))
    tracked.update(f"INSERT DATA {{ {links} }}")
    tracked.update("INSERT DATA { <urn:q> qudt:numericValue 1 }")
    assert len(tracked.samples()) == 1000


def random_update(chance):
    graph = chance.choice(["", "urn:g"])
    number = chance.randrange(3)
    o, q, i = f"<urn:o{number}>", f"<urn:q{chance.choice([number, number, 3])}>", f"<urn:i{number}>"

    def quads(text):
        return f"GRAPH <{graph}> {{ {text} }}" if graph else text

    def replace(subject, predicate, new):
        old = quads(f"{subject} {predicate} ?old")
        return (
            f"DELETE {{ {old} }} INSERT {{ {quads(f'{subject} {predicate} {new}')} }} WHERE {{ OPTIONAL {{ {old} }} }}"
        )

    stamp = f'"2026-01-01T00:00:{chance.randrange(60):02}Z"^^xsd:dateTimeStamp'
    return chance.choice(
        [
            *[replace(q, "qudt:numericValue", chance.randrange(5))] * 3,
            *[replace(i, "time:inXSDDateTimeStamp", stamp)] * 2,
            replace(o, "sosa:hasResult", q),
            replace(q, "time:hasTime", i),
            f"DELETE WHERE {{ {quads(f'{o} sosa:hasResult ?q')} }}",
            f"DELETE WHERE {{ {quads(f'{q} ?p ?v')} }}",
            f"{replace(q, 'qudt:numericValue', chance.randrange(5))} ; {replace(i, 'time:inXSDDateTimeStamp', stamp)}",
            "CLEAR SILENT GRAPH <urn:g>" if graph else "CLEAR DEFAULT",
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_random_updates_are_recorded_as_the_graph_has_them(tracked, seed):
    chance = random.Random(seed)
    for _ in range(120):
        before, count = tracked.state(), {key: len(rows) for key, rows in tracked.samples().items()}
        tracked.update(random_update(chance))
        after = tracked.state()
        new = {
            (series.graph, series.observation): rows[count.get(series, 0) :]
            for series, rows in tracked.samples().items()
            if len(rows) > count.get(series, 0)
        }
        for name, (value, stamp) in after.items():
            was = before.get(name)
            if was is not None and was != (value, stamp):
                # A changed value or time is recorded with both as they are now.
                ((time, number),) = new.pop(name)
                assert number == float(value.value)
                # After a change of a link the time is that of the commit.
                assert time in (ticks(tracked.now), stamp and seconds(stamp) * 100)
            else:
                # A new link may lead to a known value.
                rows = new.pop(name, [])
                assert [number for _, number in rows] in ([], [float(value.value)])
        assert not new


def seconds(stamp: ox.Literal) -> int:
    return 1_767_225_600 + int(stamp.value[17:19])
