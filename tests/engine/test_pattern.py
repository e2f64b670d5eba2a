"""Plain patterns on the live graph's own index give what Oxigraph gives."""

from __future__ import annotations

from collections import Counter

import pyoxigraph as ox
import pytest
from engine_world import new_engine, run
from generated_patterns import PREFIX
from generated_sparql import Queries, Updates, seeds
from hypothesis import given, settings
from oracle import BASE

from edge.engine.engine import Engine
from edge.engine.pattern import Layout, compile_pattern
from edge.engine.sparql.syntax import tokenize
from edge.engine.sparql.template import Names, Variable

EX = "http://example.org/"
NAMES = Names(PREFIX, BASE)


def native(engine: Engine, text: str, variables: list[str]) -> Counter | None:
    """The solutions by the engine's index, None if it leaves the pattern to Oxigraph."""
    layout = Layout()
    pattern = compile_pattern(text, tokenize(text), NAMES, layout, None)
    if pattern is None:
        return None
    places = [layout.place(Variable(name)) for name in variables]
    frame = layout.frame(engine.graph, {})
    terms = engine.graph.dictionary.terms

    def row(solution: list[int | None]) -> tuple:
        return tuple(None if solution[place] is None else terms[solution[place]] for place in places)

    rows = Counter(map(row, pattern.solutions(engine.graph, frame)))
    assert frame == layout.frame(engine.graph, {}), "the frame is as it was"
    return rows


def by_oxigraph(engine: Engine, text: str) -> tuple[list[str], Counter]:
    store = ox.Store()
    store.extend(engine.graph.quads())
    result = store.query(f"{PREFIX} SELECT * WHERE {{ {text} }}", base_iri=BASE)
    names = [variable.value for variable in result.variables]
    return names, Counter(tuple(solution) for solution in result)


def engine_with(data: str) -> Engine:
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ {data} }}")
    return engine


@settings(max_examples=300, deadline=None)
@given(seeds)
def test_solutions_equal_oxigraphs(seed):
    engine = new_engine()
    run(engine, PREFIX + Updates(seed).seed()[0])
    for number in range(5):
        text = Queries(seed + number).plain_group()
        names, expected = by_oxigraph(engine, text)
        rows = native(engine, text, names)
        if rows is None:
            assert "{ }" in text, f"left to Oxigraph: {text}"
        else:
            assert rows == expected, text


@pytest.mark.parametrize(
    "text",
    [
        "?s ?s ?s",
        "?s ?p ?s",
        "?s ?s ?o",
        "?s ?p ?p",
        "?g ex:p ?o . GRAPH ?g { ?s ?p ?o }",
        "GRAPH ?g { ?g ?p ?o }",
        "GRAPH ?g { ?s ?g ?o }",
        "GRAPH ?g { ?s ?p ?g } GRAPH ?h { ?g ?p ?o }",
        "_:x ex:p _:y . _:y ex:q _:x",
        "[] ex:p [ ex:q ?o ]",
        "?s ex:p ( 1 ?x )",
        "?s a ?t ; ex:p ?o , ?x",
        "OPTIONAL { ?s ex:p ?o } ?o ex:q ?s",
        "OPTIONAL { ?s ex:none ?o } OPTIONAL { ?s ex:p ?o }",
        "?s ex:p ?o OPTIONAL { ?o ex:q ?x } OPTIONAL { ?x ex:p ?y } ?s ex:q ?x",
        "?s ex:p ?o OPTIONAL { ?o ex:q ?x . ?x ex:q ?y } OPTIONAL { GRAPH ?x { ?s ?p ?y } }",
        "",
        "?s ex:p '01'^^xsd:integer , 1.0 , 'x'@EN",
    ],
)
def test_patterns_with_a_catch(text):
    engine = engine_with(
        "ex:p ex:p ex:p . ex:a ex:p ex:b , 1 , 1.0 , 'x'@en , ex:a . ex:b ex:q ex:a , ex:g1 . ex:g1 ex:p 2 . "
        "ex:a a ex:T . _:n ex:p _:m . _:m ex:q _:n . ex:c ex:p ( 1 2 ) . ex:a ex:q ex:p . "
        "GRAPH ex:g1 { ex:g1 ex:p 2 . ex:a ex:g1 ex:g2 . ex:a ex:p ex:b } GRAPH ex:g2 { ex:g2 ex:p 1 . ex:g1 ex:p 2 }"
    )
    names, expected = by_oxigraph(engine, text)
    assert native(engine, text, names) == expected


@pytest.mark.parametrize(
    "text",
    [
        "?s ?p ?o FILTER(?o > 1)",
        "BIND(1 AS ?x)",
        "?s ex:p|ex:q ?o",
        "?s ex:p* ?o",
        "?s ^ex:p ?o",
        "?s !ex:p ?o",
        "?s ex:p/ex:q ?o",
        "{ ?s ?p ?o } UNION { ?s ?p ?o }",
        "{ ?s ?p ?o }",
        "{ SELECT ?s { ?s ?p ?o } }",
        "VALUES ?s { ex:a }",
        "?s ?p ?o MINUS { ?s ex:p ?o }",
        "GRAPH ?g { }",
        "GRAPH ex:g1 { }",
        "GRAPH ?g { ?s ?p ?o OPTIONAL { ?s ex:p ?x } }",
        "GRAPH ?g { GRAPH ?h { ?s ?p ?o } }",
        "OPTIONAL { ?s ?p ?o OPTIONAL { ?s ex:p ?x } }",
        "OPTIONAL { ?s ?p ?o FILTER(?o = ?x) }",
        "<< ?s ?p ?o >> ex:q ?x",
        "?s ex:p <<( ex:a ex:b ex:c )>>",
    ],
)
def test_what_is_more_than_a_plain_pattern_is_left_to_oxigraph(text):
    assert native(new_engine(), text, []) is None


def test_hundreds_of_patterns_are_no_deep_recursion():
    engine = engine_with(" . ".join(f"ex:a ex:p{number} {number}" for number in range(600)))
    text = " . ".join(f"?s ex:p{number} ?o{number}" for number in range(600))
    assert sum(native(engine, text, ["s"]).values()) == 1
