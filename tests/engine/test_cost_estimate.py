"""Cost estimates: only evaluations with a low bound run without a way to stop them."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_world import ask, new_engine, run
from generated_patterns import PREFIX
from generated_sparql import Queries, Updates
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import BASE, Query

from edge.engine.engine import Engine
from edge.engine.queries.cost_estimate import is_small, most, outline
from edge.engine.requests import STORE_DATASET, Dataset, Graph, Solutions
from edge.protocol.syntax import tokenize

LAMPS = 1000
DOUBLED = " ".join(f"BIND(CONCAT(?t{n}, ?t{n}) AS ?t{n + 1})" for n in range(20))


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return lamps in rooms, a street of rooms, and one lamp with as many tags as there are lamps."""
    engine = new_engine()
    lamps = " ".join(
        f'<urn:lamp{n}> a <urn:Lamp> ; <urn:in> <urn:room{n % 30}> ; <urn:dims> {n} ; <urn:state> "on" .'
        for n in range(LAMPS)
    )
    rooms = " ".join(f'<urn:room{n}> <urn:name> "room {n}" ; <urn:next> <urn:room{n + 1}> .' for n in range(30))
    tags = " , ".join(map(str, range(LAMPS)))
    run(engine, f"INSERT DATA {{ {lamps} {rooms} <urn:lamp0> <urn:tag> {tags} }}")
    return engine


def small(engine: Engine, text: str, dataset: Dataset = STORE_DATASET) -> bool:
    return is_small(outline(text, tokenize(text), "urn:base:"), engine.graph, dataset)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { <urn:lamp1> ?p ?o }",
        "SELECT * { ?s ?p ?o } LIMIT 10",
        "SELECT * { ?l a <urn:Lamp> ; <urn:in> <urn:room1> ; <urn:dims> ?d ; <urn:state> ?s }",
        "SELECT * { ?l <urn:in> ?r ; <urn:dims> ?d . ?r <urn:name> ?n OPTIONAL { ?r <urn:next> ?x } } ORDER BY ?d",
        "SELECT ?r (AVG(?d) AS ?mean) { ?l <urn:in> ?r ; <urn:dims> ?d } GROUP BY ?r",
        "SELECT * { ?l <urn:dims> ?d FILTER NOT EXISTS { ?l <urn:broken> ?b } MINUS { ?l <urn:state> 'off' } }",
        "SELECT * { <urn:room1> <urn:next>+ ?r . ?r <urn:name> ?n }",
        "SELECT * { ?l <urn:in>/<urn:name> ?n }",
        "SELECT * { VALUES ?l { <urn:lamp1> <urn:lamp2> } ?l <urn:dims> ?d }",
        "DESCRIBE <urn:lamp1>",
        "CONSTRUCT { ?l <urn:x> ?d } { ?l <urn:dims> ?d }",
        "ASK { <urn:lamp0> <urn:tag> 7 }",
        "SELECT * { GRAPH ?g { ?s ?p ?o } }",
        "SELECT (CONCAT('the ', ?n) AS ?nn) { <urn:room1> <urn:name> ?n }",
        "SELECT (GROUP_CONCAT(?n) AS ?nn) { ?r <urn:name> ?n }",
        "SELECT * { ?r <urn:name> ?n FILTER(REPLACE(?n, 'room', '') = '7') }",
    ],
)
def test_a_query_that_follows_the_data_is_small(engine: Engine, text: str) -> None:
    assert small(engine, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { ?a ?b ?c . ?d ?e ?f FILTER(?c = ?f + 1) }",
        "SELECT (COUNT(*) AS ?n) { ?a <urn:dims> ?b . ?c <urn:dims> ?d . ?e <urn:dims> ?f }",
        "SELECT * { ?l <urn:tag> ?a , ?b , ?c }",
        "SELECT * { ?l <urn:dims> ?d OPTIONAL { ?a <urn:dims> ?b . ?c <urn:dims> ?e } }",
        "SELECT * { ?l <urn:dims> ?d FILTER NOT EXISTS { ?a <urn:dims> ?b . ?c <urn:dims> ?e } }",
        "SELECT * { ?l <urn:dims> ?d MINUS { ?l <urn:dims> ?b . ?c <urn:dims> ?e . ?f <urn:dims> ?g } }",
        "SELECT * { ?l <urn:dims> ?d { SELECT ?l { ?l <urn:dims> ?x . ?m <urn:dims> ?x2 . ?n <urn:dims> ?x3 } } }",
        "SELECT * { { ?a <urn:dims> ?b } UNION { ?a <urn:dims> ?b . ?c <urn:dims> ?d . ?e <urn:dims> ?f } }",
        "SELECT * { ?a (<urn:in>|<urn:dims>|<urn:state>)* ?b }",
        f"SELECT * {{ <urn:room1> <urn:name> ?t0 {DOUBLED} }}",
        f"SELECT (REPLACE(REPLACE('{'a' * 100}', 'a', '{'a' * 100}'), 'a', ?n) AS ?nn) {{ ?r <urn:name> ?n }}",
        "SELECT (CONCAT(?g, ?n) AS ?x) { { SELECT (GROUP_CONCAT(?l) AS ?g) { ?l <urn:dims> ?d } } "
        "?l2 <urn:in> ?r . ?r <urn:name> ?n }",
        "SELECT * { SERVICE <http://localhost:1/> { ?s ?p ?o } }",
    ],
)
def test_a_query_of_unbounded_cost_is_not_small(engine: Engine, text: str) -> None:
    assert not small(engine, text)


@pytest.mark.parametrize("nesting", ["OPTIONAL { ?s ?p ?o %s }", "FILTER EXISTS { ?s ?p ?o %s }", "{ ?s ?p ?o %s }"])
def test_the_estimate_of_deep_nesting_stops_early(engine: Engine, nesting: str) -> None:
    text = "?a ?b ?c"
    for _ in range(60):
        text = nesting % text
    assert not small(engine, f"SELECT * {{ ?s ?p ?o . ?x ?y ?z . {text} }}")


def test_a_dataset_is_counted_as_a_whole(engine: Engine) -> None:
    text = "SELECT * { ?a <urn:dims> ?b . ?c <urn:dims> ?d . ?e <urn:dims> ?f }"
    assert not small(engine, text, Dataset(("urn:nowhere",)))


def rows(engine: Engine, query: Query) -> int:
    result = ask(engine, query)
    if isinstance(result, Solutions):
        return len(result.rows)
    return len(result.triples) if isinstance(result, Graph) else 1


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_no_query_has_more_solutions_than_the_bound(seed: int) -> None:
    updates, queries = Updates(seed), Queries(seed)
    engine = new_engine()
    for _ in range(3):
        run(engine, f"{PREFIX} INSERT DATA {{ {updates.data()} }}")
    for _ in range(5):
        query = queries.query()
        dataset = Dataset(query.default_graphs, query.named_graphs)
        outlined = outline(query.text, tokenize(query.text), BASE)
        each = len(outlined.query.template) if outlined.query and outlined.query.template else 1
        assert rows(engine, query) <= most(outlined, engine.graph, dataset) * each


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=40))
def test_joins_have_no_more_solutions_than_the_bound(triples: list[tuple[int, int, int]]) -> None:
    """This holds even if some subjects have many objects and some have none."""
    store = ox.Store()
    engine = new_engine()
    for s, p, o in triples:
        store.add(ox.Quad(*(ox.NamedNode(f"urn:{n}") for n in (s, p, o))))
    run(engine, f"INSERT DATA {{ {' '.join(f'<urn:{s}> <urn:{p}> <urn:{o}> .' for s, p, o in triples)} }}")
    for text in (
        "SELECT * { ?a <urn:1> ?b . ?b <urn:2> ?c }",
        "SELECT * { ?a <urn:1> ?b ; <urn:1> ?c ; <urn:2> ?d }",
        "SELECT * { ?a <urn:1> ?b . ?c <urn:1> ?b . ?c <urn:2> <urn:3> }",
        "SELECT * { ?a ?p ?b . ?b ?p ?c }",
        "SELECT * { ?a <urn:1>+ ?b . ?b <urn:2>* ?c }",
        "SELECT * { ?a <urn:1> ?b OPTIONAL { ?b <urn:2> ?c } FILTER EXISTS { ?a <urn:2> ?x } }",
    ):
        found = len(list(store.query(text)))  # type: ignore[arg-type]
        assert found <= most(outline(text, tokenize(text), "urn:base:"), engine.graph, STORE_DATASET)
