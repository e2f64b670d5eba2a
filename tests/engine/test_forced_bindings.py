"""Forced bindings: terms replace variables, and a value cannot inject syntax."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, XSD, engine_with, ex, refused, triples
from engine_world import new_engine, run

from edge.engine.engine import Engine
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import UpdateFailed
from tests.support.settings import query_rules

# Forced bindings

TERMS = {
    "IRI": ex("o"),
    "string": ox.Literal("x"),
    "language": ox.Literal("x", language="en-GB"),
    "integer": ox.Literal("007", datatype=ox.NamedNode(XSD + "integer")),
    "negative": ox.Literal(-5),
    "double": ox.Literal(1.5),
    "boolean": ox.Literal(True),
    "ill-typed": ox.Literal("abc", datatype=ox.NamedNode(XSD + "integer")),
    "own datatype": ox.Literal("abc", datatype=ex("type")),
    "quotes": ox.Literal("a\"b'c\\d\n\r\t'''\"\"\""),
    "control": ox.Literal("\x00\x01\x08\x7f\u2028\ufffe😀"),
    "injection": ox.Literal('" } ; DROP ALL ; INSERT DATA { <a:a> <a:p> "'),
    "variable": ox.Literal("?s ?p ?o"),
    "empty": ox.Literal(""),
}
NATIVE = "DELETE { ?s ex:p ?old } INSERT { ?s ex:p ?new } WHERE { ?s ex:q ?key OPTIONAL { ?s ex:p ?old } }"
GENERAL = NATIVE.replace("?s ex:q ?key", "?s ex:q ?k FILTER(sameTerm(?k, ?key))")


@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("text", [NATIVE, GENERAL], ids=["native", "general"])
def test_forced_bindings_of_every_kind_of_term(kind, text):
    engine = new_engine()
    term = TERMS[kind]
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 1 ; ex:q 'other' }")
    run(engine, PREFIX + "INSERT { ex:a ex:q ?key } WHERE { }", bindings={"key": term})
    changes = run(engine, PREFIX + text, bindings={"key": term, "new": term})
    (stored,) = {quad.object for quad in engine.graph.quads() if quad.subject == ex("a") and quad.predicate == ex("q")}
    assert changes.removed == (ox.Quad(ex("a"), ex("p"), ox.Literal(1)),)
    assert changes.added == (ox.Quad(ex("a"), ex("p"), stored),)
    assert stored.value.lstrip("0") == getattr(term, "value", "").lstrip("0")


def test_a_forced_binding_to_a_blank_node_is_that_node():
    engine = engine_with("ex:a ex:q [ ex:r 1 ] . ex:b ex:q [ ex:r 1 ]")
    (node,) = {quad.object for quad in engine.graph.quads() if quad.subject == ex("a")}
    changes = run(
        engine, PREFIX + "INSERT { ?s ex:hit ?b } WHERE { ?s ex:q ?b OPTIONAL { ?b ex:r ?o } }", bindings={"b": node}
    )
    assert changes.added == (ox.Quad(ex("a"), ex("hit"), node),)
    changes = run(engine, PREFIX + "INSERT { ex:c ex:hit ?b } WHERE { ?s ex:q ?x FILTER(true) }", bindings={"b": node})
    assert changes.added == (ox.Quad(ex("c"), ex("hit"), node),), "it may stand in the template of any update"
    changes = run(
        engine, PREFIX + "INSERT { ?s ex:found ?b } WHERE { ?s ex:q ?x FILTER(sameTerm(?x, ?b)) }", bindings={"b": node}
    )
    assert changes.added == (ox.Quad(ex("a"), ex("found"), node),)
    text = PREFIX + "INSERT { ?s ex:hit ?b } WHERE { ?s ex:q* ?x FILTER(sameTerm(?x, ?b)) }"
    assert "blank node" in refused(engine, text, UpdateFailed, bindings={"b": node})


def test_a_forced_binding_to_a_triple_term_is_refused_where_it_would_be_stored():
    engine = engine_with("ex:a ex:p 1")
    term = ox.Triple(ex("s"), ex("p"), ox.Literal("01", datatype=ox.NamedNode(XSD + "integer")))
    for where in ("?s ex:p ?o", "?s ex:p* ?o FILTER(sameTerm(?o, ?t))"):
        text = PREFIX + "INSERT { ex:a ex:says ?t } WHERE { " + where + " }"
        assert "triple term" in refused(engine, text, UpdateFailed, bindings={"t": term})
    assert not run(engine, PREFIX + "INSERT { ?s ex:said ?s } WHERE { ?s ex:says ?t }", bindings={"t": term})


@pytest.mark.parametrize(
    "where",
    [
        "BIND(1 AS ?v)",
        "VALUES ?v { 1 2 }",
        "?s ex:p* ?o BIND(1 AS ?v)",
        "?s ex:p* ?o { SELECT ?v { ?s ?p ?v } }",
        "GRAPH ?v { ?s ex:p* ?o }",
        "SELECT ?v (COUNT(*) AS ?n) { ?s ?p ?v } GROUP BY ?v",
    ],
)
@pytest.mark.integration
def test_forced_bindings_that_are_invalid_in_their_position_are_refused(where):
    text = f"{PREFIX} INSERT {{ ex:a ex:q ?v }} WHERE {{ {where} }}"
    assert "forced bindings" in refused(engine_with("ex:a ex:p 1"), text, UpdateFailed, bindings={"v": ox.Literal(1)})


def test_forced_bindings_inside_a_sub_query():
    engine = engine_with("ex:a ex:p 1 . ex:b ex:p 2")
    for n, where in enumerate(("SELECT ?s ?v { ?s ex:p ?v }", "SELECT * { ?s ex:p ?v }", "SELECT ?s { ?s ?p ?v }")):
        text = f"{PREFIX} INSERT {{ ?s ex:hit{n} ?v }} WHERE {{ {where} }}"
        assert run(engine, text, bindings={"v": ox.Literal(2)}).added == (
            ox.Quad(ex("b"), ex(f"hit{n}"), ox.Literal(2)),
        )


def test_forced_bindings_in_positions_where_the_term_cannot_be():
    engine = engine_with("ex:a ex:p 1")
    for template in ("?v ex:p 1", "ex:a ?v 1", "GRAPH ?v { ex:a ex:p 1 }"):
        text = f"{PREFIX} INSERT {{ {template} }} WHERE {{ }}"
        assert run(engine, text, bindings={"v": ox.Literal("x")}) == ChangeSet()
    assert run(engine, PREFIX + "DELETE WHERE { ?v ?p ?o }", bindings={"v": ox.Literal("x")}) == ChangeSet()
    assert (
        run(engine, PREFIX + "DELETE WHERE { GRAPH ?v { ?s ?p ?o } }", bindings={"v": ox.Literal("x")}) == ChangeSet()
    )


def test_an_unused_forced_binding_is_ignored():
    assert len(run(new_engine(), "INSERT DATA { <a:a> <a:p> '?v' }", bindings={"v": ox.Literal(1)}).added) == 1


def test_the_same_text_with_other_bindings():
    engine = new_engine()
    text = PREFIX + "DELETE { ?s ex:p ?old } INSERT { ?s ex:p ?new } WHERE { OPTIONAL { ?s ex:p ?old } }"
    for number in range(3):
        for name in ("a", "b"):
            run(engine, text, bindings={"s": ex(name), "new": ox.Literal(number)})
    assert triples(engine) == {'a p "2"^^integer', 'b p "2"^^integer'}


def test_literals_are_normalized_in_texts_and_bindings():
    engine = new_engine()
    one = ox.Literal("1.0", datatype=ox.NamedNode(XSD + "decimal"))
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 1.0 }")
    for text, bindings in (
        ("INSERT DATA { ex:a ex:p '1.000'^^xsd:decimal }", {}),
        ("INSERT { ex:a ex:p ?v } WHERE { }", {"v": one}),
        ("INSERT { ex:a ex:p ?v } WHERE { BIND(?w AS ?v) }", {"w": one}),
        ("INSERT { ex:a ex:p ?v } WHERE { VALUES ?v { 1.0 1.00 } }", {}),
    ):
        assert run(engine, PREFIX + text, bindings=bindings) == ChangeSet(), text
    assert len(run(engine, PREFIX + "DELETE WHERE { ?s ex:p '01.0'^^xsd:decimal }").removed) == 1


def test_union_default_graph():
    engine = Engine(query_rules(default_graph_as_union=True), lambda document: [])
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 1 . GRAPH ex:g { ex:b ex:p 2 } }")
    changes = run(engine, PREFIX + "INSERT { ?s ex:hit ?o } WHERE { ?s ex:p ?o }")
    assert len(changes.added) == 2
    changes = run(engine, PREFIX + "WITH ex:g INSERT { ?s ex:here ?o } WHERE { ?s ex:p ?o }")
    assert changes.added == (ox.Quad(ex("b"), ex("here"), ox.Literal(2), ex("g")),)
