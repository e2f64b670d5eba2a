"""The dependencies of a query: the engine watches all of them, and few others."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from generated_patterns import PREFIX
from generated_sparql import Queries, Updates, seeds
from hypothesis import given, settings
from oracle import BASE, NaiveEngine, Query

from edge.engine.queries.dependencies import dependencies
from edge.engine.queries.evaluator import compile_evaluator
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.subscription_index import EVERYTHING, Dependencies, SubscriptionIndex, Watch
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.sparql.parser import parse_query
from edge.engine.store.graph import LiveGraph
from edge.protocol.syntax import tokenize
from tests.support.examples import examples

EX = "http://example.org/"


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


def analysed(text: str, default_graphs: tuple[str, ...] | None = None, union: bool = False) -> Dependencies:
    text = PREFIX + text
    return dependencies(parse_query(text, tokenize(text), BASE), default_graphs, union=union)


def watched(text: str, default_graphs: tuple[str, ...] | None = None) -> set[Watch]:
    return set(analysed(text, default_graphs).watches)


def in_default(*terms: object) -> Watch:
    return Watch(*terms, default_graph=True)


P, Q = in_default(None, ex("p")), in_default(None, ex("q"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * { ?s ex:p ?o }", {P}),
        ("SELECT * { ex:a ex:p 1.50 }", {in_default(ex("a"), ex("p"), ox.Literal("1.50", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#decimal")))}),
        ("SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?x } }", {P, Q}),
        ("SELECT * { ?s ex:p ?o MINUS { ?s ex:q ?x } }", {P, Q}),
        ("SELECT * { { ?s ex:p ?o } UNION { ?s ex:q ?x } }", {P, Q}),
        ("SELECT * { { SELECT ?s { ?s ex:p ?o } GROUP BY ?s } ?s ex:q ?x }", {P, Q}),
        ("SELECT * { GRAPH ex:g { ?s ex:p ?o } }", {Watch(None, ex("p"), None, ex("g"))}),
        ("SELECT * { GRAPH ?g { ?s ex:p ?o } }", {Watch(None, ex("p"))}),
        ("SELECT * { GRAPH ?g { } }", set()),
        ("SELECT * { VALUES ?s { ex:a } BIND(1 AS ?x) }", set()),
        ("SELECT * { ?s ex:p/ex:q ?o }", {P, Q}),
        ("SELECT * { ?s (ex:p|^ex:q)+ ?o }", {P, Q}),
        ("SELECT * { ?s ex:p* ?o }", {P, in_default()}),
        ("SELECT * { ex:a ex:p* ?o }", {P, in_default(ex("a")), in_default(None, None, ex("a"))}),
        ("SELECT * { ?s !ex:p ?o }", {in_default()}),
        ("ASK { ?s ex:p 'it\\'s' }", {in_default(None, ex("p"), ox.Literal("it's"))}),
        ("ASK { ?s ex:p '''x\\u0041\"\\\\''' }", {in_default(None, ex("p"), ox.Literal('xA"\\'))}),
        ("ASK { ?s ex:p 'x'@EN }", {in_default(None, ex("p"), ox.Literal("x", language="en"))}),
        ("ASK { ?s ex:p 'x'^^ex:t }", {in_default(None, ex("p"), ox.Literal("x", datatype=ex("t")))}),
        ("ASK { ex:a\\,b ex:%20 <http://example.org/a/../b> }", {in_default(ex("a,b"), ex("%20"), ex("a/../b"))}),
        ("ASK { <rel> <#p> <?q> }", {in_default(*(ox.NamedNode(BASE + text) for text in ("rel", "#p", "?q")))}),
        ("CONSTRUCT { ?s ex:r ?o } WHERE { ?s ex:p ?o }", {P}),
        ("CONSTRUCT WHERE { ?s ex:p ?o }", {P}),
        ("SELECT (COUNT(*) AS ?n) { ?s ex:p ?o }", {P}),
    ],
)  # fmt: skip
def test_patterns_wherever_they_stand(text, expected):
    assert watched(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ASK { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x } }",
        "ASK { ?s ex:p ?o FILTER NOT EXISTS { ?s ex:q ?x } }",
        "ASK { ?s ex:p ?o FILTER(?o > 1 || !EXISTS { ?s ex:q ?x }) }",
        "ASK { FILTER EXISTS { ?s ex:p ?o FILTER NOT EXISTS { ?s ex:q ?x } } }",
        "SELECT * { ?s ex:p ?o BIND(EXISTS { ?s ex:q ?x } AS ?y) }",
        "SELECT (EXISTS { ?s ex:q ?x } AS ?y) { ?s ex:p ?o }",
        "SELECT (SUM(IF(EXISTS { ?s ex:q ?x }, 1, 0)) AS ?n) { ?s ex:p ?o }",
        "SELECT ?s { ?s ex:p ?o } GROUP BY ?s HAVING (EXISTS { ?s ex:q ?x })",
        "SELECT ?s { ?s ex:p ?o } ORDER BY (EXISTS { ?s ex:q ?x })",
        "SELECT ?s { ?s ex:p ?o OPTIONAL { ?s ex:p ?x FILTER EXISTS { ?s ex:q ?x } } }",
    ],
)
def test_exists_is_watched_like_any_pattern(text):
    assert watched(text) == {P, Q}


def test_exists_in_a_graph_is_of_that_graph():
    expected = {Watch(None, ex(name), None, ex("g")) for name in "pq"}
    assert watched("ASK { GRAPH ex:g { ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x } } }") == expected


def test_the_default_graph_follows_the_dataset_of_the_request():
    assert watched("ASK { ?s ex:p ?o }", (EX + "g", EX + "h")) == {
        Watch(None, ex("p"), None, ex(name)) for name in "gh"
    }
    assert watched("ASK { ?s ex:p ?o }", ()) == set()
    assert analysed("ASK { ?s ex:p ?o }", union=True).watches == (Watch(None, ex("p")),)


def test_names_of_graphs_matter_only_to_graph_clauses():
    for text, matter in (
        ("ASK { ?s ?p ?o }", False),
        ("ASK { GRAPH ?g { } }", True),
        ("ASK { GRAPH ?g { ?s ?p ?o } }", True),
    ):
        assert analysed(text).graph_names is matter


def test_an_unparsable_query_depends_on_everything():
    text = "ASK { << ?s ?p ?o >> ?q ?r }"
    assert compile_evaluator(QueryRequest(text), QueryRules()).dependencies() == EVERYTHING


@settings(max_examples=examples(150), deadline=None)
@given(seeds)
def test_every_quad_that_changes_a_result_is_watched(seed):
    """Whatever the query, the engine misses no update that changes its result."""
    updates, queries = Updates(seed), Queries(~seed)
    naive = NaiveEngine()
    naive.update(PREFIX + updates.seed()[0])
    graph = LiveGraph()
    for _ in range(3):
        query: Query = queries.query()
        if "CONSTRUCT" in query.text or "DESCRIBE" in query.text:
            continue  # CONSTRUCT has the dependencies of its WHERE; DESCRIBE finds more during its evaluation
        request = QueryRequest(query.text, Dataset(query.default_graphs, query.named_graphs))
        depends = compile_evaluator(request, QueryRules()).dependencies()
        lutt: SubscriptionIndex[int] = SubscriptionIndex(graph)
        for watch in depends.watches:
            lutt.add(watch.key(graph), 1)
        for _ in range(3):
            before, quads, graphs = naive.evaluate(query), set(naive.store), set(naive.store.named_graphs())
            naive.update(
                PREFIX + f"INSERT DATA {{ {updates.data(most=1)} }}; DELETE DATA {{ {updates.data(False, most=1)} }}"
            )
            if naive.evaluate(query) != before:
                changed = dict.fromkeys(map(graph.intern_quad, quads ^ set(naive.store)), True)
                seen = bool(lutt.hits(changed))
                assert seen or (depends.graph_names and graphs != set(naive.store.named_graphs())), query
