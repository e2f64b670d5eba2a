"""BASE: `IRI()` gives the same in queries, subscriptions and updates (SPARQL 1.1 Query, 17.4.2.8)."""

from __future__ import annotations

from collections import Counter

import pyoxigraph as ox
import pytest
from engine_client import Client, plain
from engine_world import ask, current, new_engine, run
from oracle import Query

from edge.engine.requests import Graph, Solutions

BASES = {
    "BASE <http://b.example/>": "http://b.example/",
    "BASE <http://a.example/> base <http://b.example/>": "http://b.example/",
    "BASE <http://b.example/z/> BASE <../>": "http://b.example/",
    "BASE <http://a.example/> PREFIX x: <sub/> BASE <http://b.example/>": "http://b.example/",
    "": "http://localhost/",
}
QUERIES = (
    "SELECT ?i { ?s <urn:p> ?o BIND(IRI('x') AS ?i) }",
    "SELECT ?i { ?s <urn:p> ?o BIND(URI(?o) AS ?i) }",
    "SELECT ?s { ?s <urn:p> ?o FILTER(STR(IRI(?o)) = 'BASEx') }",
    "SELECT ?s { ?s <urn:p> ?o FILTER(IRI(?o) IN (<x>, <y>)) }",
    "SELECT ?s { ?s <urn:p> ?o FILTER EXISTS { ?s <urn:p> ?x FILTER(STR(IRI(?x)) = 'BASEx') } }",
    "ASK { ?s <urn:p> ?o FILTER(STR(IRI(?o)) = 'BASEx') }",
    "CONSTRUCT { ?s <urn:q> ?i } WHERE { ?s <urn:p> ?o BIND(IRI(?o) AS ?i) }",
    "SELECT (SAMPLE(IRI(?o)) AS ?i) { ?s <urn:p> ?o }",
    "SELECT (IRI(MAX(?o)) AS ?i) { ?s <urn:p> ?o } HAVING(STR(IRI('x')) = 'BASEx')",
    "SELECT ?i { ?s <urn:p> ?o { SELECT (IRI(?o) AS ?i) { ?s <urn:p> ?o } } }",
    "SELECT ?i { ?s <urn:p> ?o BIND(IRI(?o) AS ?i) } LIMIT 5",
)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("query", QUERIES)
def test_a_subscription_resolves_as_a_query_does(base, query):
    engine = new_engine()
    text = Query(f"{base} {query}".replace("BASEx", BASES[base] + "x"))
    client = Client(engine, text.text)
    run(engine, "INSERT DATA { <urn:s> <urn:p> 'x' }")
    result = ask(engine, text)
    if isinstance(result, Solutions):
        expected = Counter(result.rows)
    else:
        expected = (
            Counter(map(tuple, result.triples)) if isinstance(result, Graph) else Counter([(ox.Literal(result),)])
        )
    assert expected, "the query finds something"
    assert current(engine, text)[1] == expected
    assert Counter(client.last.delta.added) == expected


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("where", ["?s <urn:p> ?o", "?s <urn:p>+ ?o"])
def test_an_update_resolves_against_the_base_of_its_operation(base, where):
    engine = new_engine()
    run(engine, "INSERT DATA { <urn:s> <urn:p> 'x' }")
    one = f"INSERT {{ ?s <urn:q> ?i }} WHERE {{ {where} BIND(IRI(?o) AS ?i) }}"
    run(engine, f"{base} {one} ; BASE <http://c.example/> {one}")
    found = current(engine, Query("SELECT ?i { ?s <urn:q> ?i }"))[1]
    assert sorted(plain(row)[0] for row in found) == sorted((BASES[base] + "x", "http://c.example/x"))
