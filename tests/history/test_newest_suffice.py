"""Random queries for last times and values: with the newest rows alone, the answers are those of Oxigraph on all rows.

DuckDB evaluates them, as it needs no session. $EDGE_HISTORY_NEWEST, for example `1000:2000`, selects the histories of a
long run; the default is a few.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from history_data import EX, EXPLICIT, MAPPED, ONCE, Stored, frame, history, numbered, readings
from history_oracles import Oxigraph, Row, canonical
from pyspark.sql import functions as F  # noqa: N812

from edge.outbox.observation import DATE_TIME_STAMP, DCTERMS, MONITOR, OWL_TIME, QUDT, SOSA, XSD
from spark_offload.embedded.history import EmbeddedHistory
from spark_offload.embedded.session import connect_mode, embedded_session
from spark_offload.errors import QueryRefused
from spark_offload.newest_rows import newest
from spark_offload.sparql.content import Content

FIRST, _, LAST = os.environ.get("EDGE_HISTORY_NEWEST", "0:6").partition(":")
PREFIXES = (
    f"PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}> PREFIX dct: <{DCTERMS}>"
    f" PREFIX m: <{MONITOR}> "
)
KINDS = (
    (10, ((MAPPED, 24),)),
    (10, ((MAPPED, 16), (ONCE, 8))),
    # Observations with the same IRI, whose triples are joined: slow.
    (3, ((MAPPED, 12), (EXPLICIT, 6))),
)
"""Numbers of queries, and the observations."""
PATTERNS = {
    "f": "?o sosa:hasFeatureOfInterest {} .",
    "p": "?o sosa:observedProperty {} .",
    "s": "?o sosa:madeBySensor {} .",
    "i": "?o dct:isVersionOf {} .",
    "m": "?o m:hasMqttTopic {} .",
    "u": "?o sosa:hasResult ?r . ?r qudt:unit {} .",
    "v": "?o sosa:hasResult ?r . ?r qudt:numericValue {} .",
}
"""Patterns of the columns other than the time, by the name of their variable."""
CONSTANTS = {
    "f": f"<{EX}place/0>",
    "p": f"<{EX}property/0>",
    "s": f"<{EX}sensor/0>",
    "i": f"<{EX}observation/0>",
    "m": '"home/1"',
    "u": f"<{EX}unit/0>",
    "v": "20",
}
TIME = "?o sosa:hasResult ?r . ?r time:hasTime ?n . ?n time:inXSDDateTimeStamp {} ."
GRAPHS = ("{}", "{}", "{}", f"GRAPH <{EX}graph/0> {{{{ {{}} }}}}", "GRAPH ?g {{ {} }}")

LATEST = "<urn:edge:latest>"

Cells = dict[str, str]
"""Terms by the name of their column, as in `PATTERNS`."""


def stored(number: int) -> list[Stored]:
    """Return observations of few series, many of them at the same time, with times that order like their timestamps."""
    chance = random.Random(number)
    drawn = history(*KINDS[number % len(KINDS)][1], number=number)
    contexts = {
        own: [one.context for one in drawn if (one.context.series is None) == own][: chance.randint(1, 4)]
        for own in (True, False)
    }
    return [
        one._replace(
            context=chance.choice(contexts[one.context.series is None])._replace(
                datatype=XSD + "integer", time_datatype=DATE_TIME_STAMP
            ),
            cells=one.cells._replace(value=str(chance.choice((3, 20, 21))), time_text=None),
        )
        for one in drawn
    ]


def star(cells: Cells, time: str, role: str, chance: random.Random) -> str:
    """Return the patterns of an observation, with variables for it and its parts that no other star has."""
    patterns = [PATTERNS[name].format(term) for name, term in cells.items()] + ([TIME.format(time)] if time else [])
    text = " ".join(chance.sample(patterns, len(patterns))) or "?o a sosa:Observation ."
    for name in "orn":
        text = text.replace(f"?{name} ", f"?{name}{role} ")
    return text


def queries(chance: random.Random) -> Iterator[str]:
    while True:
        names = chance.sample([*PATTERNS], chance.choice((1, 1, 2, 3)))
        cells = {
            name: CONSTANTS[name] if chance.random() < (0.3 if name == "v" else 0.1) else f"?{name}" for name in names
        }
        variables = [term for term in cells.values() if term.startswith("?")]
        graph = chance.choice(GRAPHS)
        keys = [name for name in variables if name != "?v" and chance.random() < 0.6]
        inner = graph.format(star(cells, "?t" if chance.random() < 0.95 else "?v", "1", chance))
        if chance.random() < 0.2:
            yield f"SELECT DISTINCT {chance.choice([*variables, '?t', ' '.join(keys or ['?t'])])} {{ {inner} }}"
            continue
        shown = ["(MAX(?t) AS ?last)"] + [
            f"({chance.choice(('MIN', 'MAX', 'COUNT') if name == '?v' else ('MIN', 'MAX'))}({name}) AS ?x{name[1:]})"
            for name in variables
            if name not in keys and chance.random() < 0.2
        ]
        if chance.random() < 0.1:
            shown = [one.replace("MAX(?t)", "MIN(?t)") for one in shown]
        projected = [name for name in keys if chance.random() < 0.9]
        group = f"SELECT {' '.join((*projected, *shown))} {{ {inner} }}" + (
            f" GROUP BY {' '.join(keys)}" if keys else ""
        )
        if chance.random() < 0.3:
            yield group
            continue
        yield f"SELECT * {{ {joined(group, cells, graph, chance)} }}"


def joined(group: str, cells: Cells, graph: str, chance: random.Random) -> str:
    """Return the join of a subquery for last times with the observations at these times, often not its own."""
    others = {name: term for name, term in cells.items() if chance.random() < 0.8}
    for name in chance.sample([*PATTERNS], chance.choice((0, 1, 1, 2))):
        others.setdefault(name, CONSTANTS[name] if chance.random() < 0.2 else f"?{name}2")
    graph = graph if chance.random() < 0.9 else chance.choice(GRAPHS)
    second = graph.format(star(others, "?last" if chance.random() < 0.95 else "?other", "2", chance))
    parts = [f"{{ {group} }}", second] if chance.random() < 0.8 else [second, f"{{ {group} }}"]
    more = ("", "", "FILTER(?last > ?v2)", "BIND(?last AS ?b)", "OPTIONAL { ?o2 sosa:madeBySensor ?w }")
    parts.insert(chance.randint(1, 2), chance.choice(more))
    return " ".join(parts)


@pytest.mark.parametrize("number", range(int(FIRST), int(LAST)))
def test_the_newest_rows_have_the_answers_of_all_rows(number: int) -> None:
    observations = stored(number)
    oxigraph = Oxigraph(quad for one in observations for quad in one.quads())
    rows = frame(embedded_session(), observations)
    asked = EmbeddedHistory(rows)
    asked._content._newest_rows = partial(newest, rows)  # type: ignore[method-assign]
    made = queries(random.Random(number))
    count, used = KINDS[number % len(KINDS)][0], 0
    for _ in range(count):
        text = PREFIXES + next(made)
        vars(asked._content).pop("newest_whole_rows", None)
        found = Counter(solutions(asked, text))
        used += "newest_whole_rows" in vars(asked._content)
        assert found == Counter(oxigraph.answer(text, "SELECT")), text
    assert used or count < 10, "no query used the newest rows alone"


@pytest.mark.parametrize(
    ("last", "count"),
    [
        ("SELECT ?s (MAX(?t) AS ?last) { ?o sosa:madeBySensor ?s ; sosa:hasResult ?r . ?r qudt:unit ?u . TIME }", 2),
        ("SELECT (MAX(?t) AS ?last) { ?o sosa:madeBySensor ?s . TIME }", 3),
    ],
    ids=["a column that the second star lacks", "a key that is not selected"],
)
def test_rows_that_are_not_the_newest_can_have_last_times(last: str, count: int) -> None:
    without = [(context._replace(unit=None), cells) for context, cells in readings("a1", range(3))]
    observations = numbered([*readings("a1", range(2)), *without, *readings("b1", range(4))])
    rows = frame(embedded_session(), observations)
    asked = EmbeddedHistory(rows)
    asked._content._newest_rows = partial(newest, rows)  # type: ignore[method-assign]
    group = last.replace("TIME", TIME.format("?t"))
    second = star({"s": "?s"}, "?last", "2", random.Random(0))
    text = f"{PREFIXES} SELECT * {{ {{ {group} GROUP BY ?s }} {second} }}"
    oxigraph = Oxigraph(quad for one in observations for quad in one.quads())
    found = solutions(asked, text)
    assert Counter(found) == Counter(oxigraph.answer(text, "SELECT"))
    assert len(found) >= count


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_the_graph_of_the_newest_observations(number: int) -> None:
    observations = stored(number)
    last: dict[tuple[object, ...], Stored] = {}
    for one in sorted(observations, key=lambda one: (one.cells.time, one.seq, one.gateway)):
        context = one.context
        series = next(
            (iri for iri in (context.series, context.sensor, context.topic, context.feature) if iri is not None), ""
        )
        last[series, context.property] = one._replace(context=context._replace(graph=None))
    oxigraph = Oxigraph(quad for one in last.values() for quad in one.quads())
    asked = EmbeddedHistory(frame(embedded_session(), observations))
    for where in (
        f"{{ {star({'s': '?s', 'v': '?v'}, '?t', '', random.Random(0))} OPTIONAL {{ ?r qudt:unit ?u }} }}",
        "{ ?a ?b ?c }",
        "{ ?o sosa:hasResult+ ?r FILTER EXISTS { ?o sosa:hasFeatureOfInterest ?f } }",
        "{}",
    ):
        expected = sorted(oxigraph.answer(f"{PREFIXES} SELECT * {where}", "SELECT"), key=repr)
        for text in (f"{{ GRAPH {LATEST} {where} }}", f"FROM {LATEST} {where}", f"FROM {LATEST} FROM {LATEST} {where}"):
            assert sorted(solutions(asked, f"{PREFIXES} SELECT * {text}"), key=repr) == expected, text
    assert LATEST in asked.explain(f"SELECT * {{ GRAPH {LATEST} {{ ?o a ?c OPTIONAL {{ ?o ?p ?q }} }} }}")
    with pytest.raises(QueryRefused, match="and other graphs"):
        asked.sparql(f"SELECT * FROM {LATEST} FROM <{EX}graph/0> {{ ?o ?p ?q }}")


def test_times_that_do_not_order_like_their_timestamps_need_all_rows() -> None:
    odd = EmbeddedHistory(frame(embedded_session(), history((MAPPED, 20), number=3)))
    assert odd._content.odd_times
    odd._content._newest_rows = lambda: odd._content.rows  # type: ignore[method-assign]
    assert odd._content.newest_whole_rows is None
    rows = frame(embedded_session(), numbered(readings("a1", range(4))))
    with connect_mode():
        without = rows.withColumn("ts", F.when(F.col("seq") != 2, F.col("ts")))
        assert Content(rows, partial(newest, rows)).newest_whole_rows is not None
        assert Content(without, partial(newest, without)).newest_whole_rows is None, "another program wrote no time"


def solutions(asked: EmbeddedHistory, text: str) -> list[Row]:
    found = asked.sparql(text)
    names = sorted(found.columns)
    return [tuple(map(canonical, row)) for row in found.select(*names).collect()]
