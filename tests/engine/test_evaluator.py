"""Results that are compared as text: the parsed text equals the content of the store."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_client import Client, engine_with, ex, update
from engine_world import new_engine
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.queries.evaluator import compile_evaluator
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.result_table import decoded
from edge.engine.requests import QueryRequest, SubscribeFailed
from edge.protocol.errors import ResultTooLarge
from tests.support.examples import examples
from tests.support.settings import query_rules

XSD = "http://www.w3.org/2001/XMLSchema#"
DATATYPES = ("string", "integer", "decimal", "double", "float", "boolean", "dateTime", "hexBinary")
LEXICAL = st.one_of(
    st.text(st.characters(codec="utf-8")),
    st.sampled_from(
        ["1", "-0", "1.0", "1.", ".5", "1e0", "1E400", "INF", "NaN", "true", "", "\t", "\r\n", "\x00", '"', "\\t"]
    ),
)
LITERALS = st.one_of(
    st.builds(
        lambda text, name: ox.Literal(text, datatype=ox.NamedNode(XSD + name)), LEXICAL, st.sampled_from(DATATYPES)
    ),
    st.builds(lambda text, tag: ox.Literal(text, language=tag), LEXICAL, st.sampled_from(["en", "de-at", "EN"])),
)
OTHERS = st.sampled_from([ox.NamedNode("http://example.org/é?a=b&c#d"), ox.BlankNode("b0"), ox.BlankNode("0.a")])
TRIPLES = st.builds(lambda term: ox.Triple(ox.BlankNode("s"), ox.NamedNode("urn:p"), term), LITERALS)


@given(st.lists(st.one_of(LITERALS, OTHERS, TRIPLES), min_size=1, max_size=4))
@settings(max_examples=examples(150), deadline=None)
def test_encoded_result_contains_every_term_unchanged(terms):
    store = ox.Store()
    for number, term in enumerate(terms):
        store.add(ox.Quad(ox.NamedNode(f"urn:s{number}"), ox.NamedNode("urn:p"), term))
    text = "SELECT ?o ?none ?s { ?s <urn:p> ?o }"
    table = compile_evaluator(QueryRequest(text), QueryRules()).read(store, QueryRules(), 0)
    assert sorted(map(str, decoded(table.header, table.lines))) == sorted(str(tuple(row)) for row in store.query(text))
    assert table.variables == ("o", "none", "s")
    described = compile_evaluator(QueryRequest("DESCRIBE ?s { ?s <urn:p> ?o }"), QueryRules()).read(
        store, QueryRules(), 0
    )
    assert {row for row in decoded(described.header, described.lines) if str(row[0]).startswith("<urn:s")} == {
        (quad.subject, quad.predicate, quad.object) for quad in store
    }


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * { }", [()]),
        ("SELECT * { <urn:no> <urn:no> <urn:no> }", []),
        ("SELECT ?o { <urn:no> <urn:no> ?o }", []),
        ("SELECT ?none { }", [(None,)]),
        ("SELECT ?none ?other { } LIMIT 5", [(None, None)]),
        ("DESCRIBE <urn:no>", []),
        ("DESCRIBE ?s { ?s <urn:no> ?o }", []),
        ("ASK { }", [(ox.Literal(True),)]),
    ],
)
def test_results_of_no_rows_or_no_columns(query, rows):
    engine = new_engine(query_rules(booster="re-evaluate"))
    client = Client(engine, query)
    assert list(client.last.delta.added) == rows


@pytest.mark.parametrize(
    "query", ["SELECT ?o { ?s ex:p ?o } LIMIT 9", "DESCRIBE ex:s", "CONSTRUCT { ?s ex:q ?o } WHERE { ?s ex:p ?o }"]
)
def test_number_of_result_rows_is_limited(query):
    engine = new_engine(query_rules(booster="re-evaluate", max_query_memory=512 * 3))
    update(engine, "INSERT DATA { ex:s ex:p 1 , 2 , 3 }")
    client = Client(engine, query)
    assert len(client.last.delta.added) == 3
    update(engine, "INSERT DATA { ex:s ex:p 4 }")
    assert isinstance(client.items[-1], SubscribeFailed)
    with pytest.raises(ResultTooLarge, match="max_query_memory"):
        Client(engine, query)


def test_only_changed_rows_are_notified_with_their_multiplicity():
    engine = engine_with("ex:a ex:p 1 . ex:b ex:p 1 . ex:c ex:p 2")
    client = Client(engine, "SELECT ?o { ?s ex:p ?o } LIMIT 100")
    assert client.news() == ([("1",), ("1",), ("2",)], [])
    update(engine, "DELETE DATA { ex:a ex:p 1 } ; INSERT DATA { ex:d ex:p 2 , 3 }")
    assert client.news() == ([("2",), ("3",)], [("1",)])
    update(engine, "DELETE DATA { ex:b ex:p 1 } ; INSERT DATA { ex:e ex:p 1 }")
    assert client.news() is None


def test_a_second_subscriber_gets_the_result_as_it_is_now():
    engine = engine_with("ex:a ex:p 1")
    queries = ("SELECT ?o { ?s ex:p ?o } LIMIT 9", "CONSTRUCT { [] ex:q ?o } WHERE { ?s ex:p ?o } LIMIT 9")
    first = [Client(engine, query) for query in queries]
    update(engine, "INSERT DATA { ex:a ex:p 2 }")
    second = [Client(engine, query) for query in queries]
    assert engine.spus.spus == 2
    for one, other in zip(first, second, strict=True):
        received = {row for item in one.items for row in item.delta.added}  # type: ignore[union-attr]
        assert received == set(other.last.delta.added)
    assert {row[1] for row in second[1].last.delta.added} == {ex("q")}
