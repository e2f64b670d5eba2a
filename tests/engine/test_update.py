"""Updates: every form of SPARQL 1.1 Update has the same effect as in Oxigraph, and change sets are exact."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, engine_with, ex, refused
from engine_world import NOW, World, ask, new_engine, run

from edge.engine.engine import Engine
from edge.engine.requests import UpdateRequest
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import ParsingFailed, UpdateFailed
from tests.support.settings import query_rules

# Each form, compared with Oxigraph

FORMS = {
    "insert data": "INSERT DATA { ex:a ex:p ex:b , 1 ; ex:q 'x'@EN . GRAPH ex:g { ex:a ex:p 2 } . ex:z a ex:T }",
    "insert data with blank nodes": "INSERT DATA { _:x ex:p _:y , [ ex:q _:x ] , ( 1 2 ) . [] ex:p [] . [ ex:p 1 ] }",
    "delete data": "DELETE DATA { ex:a ex:p ex:b . GRAPH ex:g1 { ex:a ex:p 1 } . ex:no ex:no ex:no }",
    "delete where": "DELETE WHERE { ?s ex:p ?o . ?o ex:q ?z }",
    "delete where in graphs": "DELETE WHERE { GRAPH ?g { ?s ex:p ?o } ?s ex:q ?z }",
    "delete where of an empty group": "DELETE WHERE { }",
    "modify": "DELETE { ?s ex:p ?o } INSERT { ?o ex:was ?s } WHERE { ?s ex:p ?o }",
    "swap": "DELETE { ?s ex:p ?o } INSERT { ?o ex:p ?s } WHERE { ?s ex:p ?o FILTER(isIRI(?o)) }",
    "insert": "INSERT { ?s ex:r ?o . GRAPH ex:new { ?o ex:r ?s } } WHERE { ?s ex:p ?o }",
    "illegal positions yield nothing": "INSERT { ?o ex:r ?s . ?s ?o 1 . GRAPH ?o { ?s ex:r 1 } } WHERE { ?s ex:p ?o }",
    "unbound yields nothing": "INSERT { ?s ex:r ?none . ?s ex:r ?o } WHERE { ?s ex:p ?o }",
    "delete and insert the same": "DELETE { ?s ex:p ?o } INSERT { ?s ex:p ?o } WHERE { ?s ex:p ?o }",
    "fresh blank nodes": "INSERT { ?s ex:made _:x . _:x ex:of ?o , [] } WHERE { ?s ex:p ?o }",
    "with": "WITH ex:g1 DELETE { ?s ex:p ?o } INSERT { ?s ex:r ?o . GRAPH ex:g2 { ?s ex:r ?o } } WHERE { ?s ex:p ?o }",
    "with a graph that is not there": "WITH ex:nowhere INSERT { ex:a ex:p ?o } WHERE { OPTIONAL { ex:a ex:p ?o } }",
    "with and general": "WITH ex:g1 INSERT { ?s ex:r ?o } WHERE { ?s ex:p ?o FILTER(?o = 1) GRAPH ?g { ?s ex:p ?z } }",
    "using": "INSERT { ?s ex:r ?o } USING ex:g1 USING ex:g2 WHERE { ?s ex:p ?o }",
    "using named": "INSERT { ?s ex:r ?o } USING ex:g1 USING NAMED ex:g2 WHERE { ?s ex:p ?x . GRAPH ?g { ?s ex:p ?o } }",
    "using named alone": "INSERT { ?s ex:r ?o } USING NAMED ex:g2 WHERE { ?s ex:p ?o }",
    "with and using": "WITH ex:g2 DELETE { ?s ex:p ?o } INSERT { ?s ex:r ?o } USING ex:g1 WHERE { ?s ex:p ?o }",
    "optional": "INSERT { ?s ex:r ?o . ?s ex:t ?z } WHERE { ?s ex:p ?o OPTIONAL { ?o ex:q ?z } }",
    "optional twice": "INSERT { ?s ex:r ?x } WHERE { ?s ex:p ?o OPTIONAL { ?o ex:q ?x } OPTIONAL { ?s ex:q ?x } }",
    "graph variable as subject": "INSERT { ?g ex:r ?o } WHERE { GRAPH ?g { ?s ex:p ?o } ?g ex:q ?z }",
    "graphs that exist": "INSERT { ex:a ex:sees ?g } WHERE { GRAPH ?g { } }",
    "union": "INSERT { ?s ex:r ?o } WHERE { { ?s ex:p ?o } UNION { GRAPH ?g { ?s ex:p ?o } } }",
    "minus": "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o MINUS { ?s ex:q ?x } }",
    "not exists": "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER NOT EXISTS { ?s ex:q ?x } }",
    "values": "INSERT { ?s ex:r ?v } WHERE { VALUES (?s ?v) { (ex:a 1) (UNDEF 2) (ex:c UNDEF) } }",
    "bind": "INSERT { ?s ex:r ?n } WHERE { ?s ex:p ?o BIND(?o + 1 AS ?n) }",
    "sub-query": "INSERT { ?s ex:count ?n } WHERE { SELECT ?s (COUNT(*) AS ?n) { ?s ?p ?o } GROUP BY ?s }",
    "path": "INSERT { ?s ex:reaches ?o } WHERE { ?s (ex:p|ex:q)+ ?o }",
    "repeated variable": "INSERT { ?s ex:self 1 } WHERE { ?s ?p ?s }",
    "comparison without spaces": "INSERT { ?s ex:r ?o } WHERE { ?s ex:p ?o BIND(9 AS ?m) FILTER(?o<?m&&?o>1) }",
    "create": "CREATE GRAPH ex:fresh",
    "create what exists": "CREATE GRAPH ex:g1",
    "create silent": "CREATE SILENT GRAPH ex:g1",
    "clear": "CLEAR GRAPH ex:g1",
    "clear missing": "CLEAR GRAPH ex:nowhere",
    "clear missing silent": "CLEAR SILENT GRAPH ex:nowhere",
    "clear default": "CLEAR DEFAULT",
    "clear named": "CLEAR NAMED",
    "clear all": "CLEAR ALL",
    "drop": "DROP GRAPH ex:g1",
    "drop missing": "DROP GRAPH ex:nowhere",
    "drop silent": "DROP SILENT GRAPH ex:nowhere",
    "drop default": "DROP DEFAULT",
    "drop named": "DROP NAMED",
    "drop all": "DROP ALL",
    "add": "ADD ex:g1 TO ex:g2",
    "add to default": "ADD GRAPH ex:g1 TO DEFAULT",
    "add onto itself": "ADD ex:g1 TO ex:g1",
    "add missing silent": "ADD SILENT ex:nowhere TO ex:g1",
    "copy": "COPY ex:g1 TO ex:g2",
    "copy default": "COPY DEFAULT TO GRAPH ex:fresh",
    "copy onto itself": "COPY DEFAULT TO DEFAULT",
    "copy an empty graph": "COPY ex:empty TO ex:g1",
    "copy missing silent": "COPY SILENT ex:nowhere TO ex:g1",
    "move": "MOVE ex:g1 TO ex:g2",
    "move default": "MOVE DEFAULT TO ex:g1",
    "move to default": "MOVE ex:g1 TO DEFAULT",
    "move onto itself": "MOVE ex:g1 TO ex:g1",
    "move missing": "MOVE ex:nowhere TO ex:g1",
    "move missing silent": "MOVE SILENT ex:nowhere TO ex:g1",
    "move an empty graph": "MOVE ex:empty TO ex:fresh",
    "nothing": "",
    "several": "INSERT DATA { ex:n ex:p 1 } ; DELETE WHERE { ?s ex:p ?o } ; INSERT DATA { ex:n ex:p 2 } ;",
    "later sees earlier": "INSERT DATA { ex:n ex:p 1 } ; INSERT { ?s ex:r ?o } WHERE { ?s ex:p ?o FILTER(?o = 1) }",
    "add and take away": "INSERT DATA { ex:n ex:p 1 } ; DELETE DATA { ex:n ex:p 1 }",
    "take away and add": "DELETE DATA { ex:a ex:p ex:b } ; INSERT DATA { ex:a ex:p ex:b }",
    "create and drop": "CREATE GRAPH ex:fresh ; DROP GRAPH ex:fresh",
    "drop and create": "DROP GRAPH ex:g1 ; CREATE GRAPH ex:g1",
    "failing at the end": "INSERT DATA { ex:n ex:p 1 } ; DROP ALL ; CREATE GRAPH ex:x ; CREATE GRAPH ex:x",
    "failing after general": "INSERT { ?s ex:r 1 } WHERE { ?s ?p ?o FILTER(true) } ; DROP GRAPH ex:nowhere",
}
SEED = (
    "INSERT DATA { ex:a ex:p ex:b , 1 , 5 . ex:b ex:q ex:c . ex:c ex:p ex:c . ex:g1 ex:q 7 . "
    "ex:b ex:p '01'^^xsd:integer . GRAPH ex:g1 { ex:a ex:p 1 , 2 . ex:b ex:p ex:a } "
    "GRAPH ex:g2 { ex:a ex:p 2 ; ex:q _:n } } ; CREATE GRAPH ex:empty"
)


@pytest.mark.parametrize("form", FORMS)
def test_each_update_form_has_the_effect_of_oxigraph(form):
    world = World()
    world.update(SEED.split(" ; "), PREFIX)
    world.update(FORMS[form].split(" ; "), PREFIX)
    world.check_restored()
    world.check_no_leak()


# Exact change sets


def test_an_update_without_effect_has_an_empty_change_set():
    engine = engine_with("ex:a ex:p 1")
    for text in (
        "INSERT DATA { ex:a ex:p 1 }",
        "INSERT DATA { ex:a ex:p '01'^^xsd:integer }",
        "DELETE DATA { ex:a ex:p 2 }",
        "DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "INSERT DATA { ex:b ex:p 1 } ; DELETE DATA { ex:b ex:p 1 }",
        "ADD DEFAULT TO DEFAULT",
        "CREATE GRAPH ex:g ; DROP GRAPH ex:g",
    ):
        assert run(engine, PREFIX + text) == ChangeSet(), text


def test_changes_name_added_and_removed_quads():
    engine = engine_with("ex:a ex:p 1 . GRAPH ex:g { ex:a ex:p 1 }")
    changes = run(
        engine, PREFIX + "DELETE { ?s ex:p 1 } INSERT { ?s ex:p 1 , 2 } WHERE { ?s ex:p 1 } ; DROP GRAPH ex:g"
    )
    assert changes.added == (ox.Quad(ex("a"), ex("p"), ox.Literal(2)),)
    assert changes.removed == (ox.Quad(ex("a"), ex("p"), ox.Literal(1), ex("g")),)
    assert changes.created == ()
    assert changes.dropped == (ex("g"),)


def test_outcome_counts_quads():
    engine = engine_with("ex:a ex:p 1 , 2")
    (executed,) = engine.execute([engine.prepare(UpdateRequest("DELETE WHERE { ?s ?p ?o }"))], NOW)
    assert (executed.outcome.added, executed.outcome.removed, executed.outcome.changed) == (0, 2, True)


def test_blank_nodes_of_a_template_are_fresh_for_each_solution_and_each_run():
    engine = engine_with("ex:a ex:p 1 , 2")
    text = PREFIX + "INSERT { ?s ex:made _:x . _:x ex:of ?o } WHERE { ?s ex:p ?o }"
    first, second = run(engine, text), run(engine, text)
    made = {quad.object for quad in first.added + second.added if quad.predicate == ex("made")}
    assert len(made) == 4
    data = PREFIX + "INSERT DATA { _:x ex:q _:x }"
    assert len(run(engine, data).added) == len(run(engine, data).added) == 1


def test_a_stored_blank_node_keeps_its_name():
    engine = engine_with("ex:a ex:p [ ex:q 1 ]")
    (node,) = {quad.subject for quad in engine.graph.quads() if quad.predicate == ex("q")}
    for where in ("?b ex:q ?o", "?b ex:q ?o FILTER(true)"):
        changes = run(engine, f"{PREFIX} INSERT {{ ?b ex:seen '{where}' }} WHERE {{ {where} }}")
        assert changes.added[0].subject == node


def test_delete_where_with_the_largest_number_of_joins():
    numbers = range(64)
    engine = engine_with(" . ".join(f"ex:a ex:p{n} {n}" for n in numbers))
    pattern = " . ".join(f"ex:a ex:p{n} ?x{n}" for n in numbers)
    assert len(run(engine, f"{PREFIX} DELETE WHERE {{ {pattern} }}").removed) == 64


def test_very_long_insert_data():
    engine = new_engine()
    text = PREFIX + "INSERT DATA {" + " ".join(f"ex:s{n} ex:p {n} , 'x{n}' ." for n in range(5_000)) + "}"
    assert len(run(engine, text).added) == 10_000
    assert run(engine, text) == ChangeSet()


# Failures


def test_a_list_of_updates_is_all_or_nothing():
    engine = engine_with("ex:a ex:p 1")
    before = set(engine.graph.quads())
    batch = [
        engine.prepare(UpdateRequest(PREFIX + text))
        for text in ("INSERT DATA { ex:b ex:p 1 }", "DELETE WHERE { ?s ?p ?o }", "DROP GRAPH ex:none")
    ]
    with pytest.raises(UpdateFailed):
        engine.execute(batch, NOW)
    assert set(engine.graph.quads()) == before
    assert len(ask(engine, "SELECT * { ?s ?p ?o }").rows) == 1


def test_source_of_add_and_copy_must_exist():
    engine = engine_with("ex:a ex:p 1")
    for verb in ("ADD", "COPY", "MOVE"):
        assert "SILENT" in refused(engine, f"{PREFIX} {verb} ex:none TO ex:g", UpdateFailed)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { ex:a ex:p 1 }",
        "INSERT DATA { ?s ?p ?o }",
        "DELETE DATA { _:b <a:p> 1 }",
        "DELETE WHERE { _:b <a:p> 1 }",
        "DELETE { _:b <a:p> 1 } WHERE { }",
        "INSERT { <a:a> <a:p> 1 }",
        "INSERT DATA { <a:a> <a:p> 1 ",
        "INSERT DATA { <a:a> <a:p> 1 } }",
        "INSERT DATA { <a:a> <a:p> 1 } ;; INSERT DATA { <a:a> <a:p> 2 }",
        "; INSERT DATA { <a:a> <a:p> 1 }",
        "INSERT DATA { <a:a> <a:p> 1 } INSERT DATA { <a:a> <a:p> 2 }",
        "SELECT * { ?s ?p ?o }",
        "CREATE GRAPH",
        "CREATE <a:g>",
        "DROP <a:g>",
        "ADD <a:g>",
        "MOVE <a:g> TO NAMED",
        "COPY ALL TO <a:g>",
        "CLEAR",
        "LOAD <a:g> INTO",
        "LOAD <a:g> anything",
        "INSERT DATA { <a b> <a:p> 1 }",
        "INSERT DATA { _:b <a:p> 1 } ; INSERT DATA { _:b <a:p> 1 }",
        "PREFIX ex: INSERT DATA {}",
        "\x00",
        "INSERT DATA { <a:a> <a:p> 'x }",
        "WITH <a:g> INSERT DATA { <a:a> <a:p> 1 }",
        "WITH <a:g> DELETE WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p } WHERE { ?s ?p ?o }",
    ],
)
def test_a_text_that_is_not_an_update_is_refused_before_it_runs(text):
    engine = Engine(query_rules(allow_load=True), lambda document: [])
    with pytest.raises(ParsingFailed):
        engine.prepare(UpdateRequest(text))


def test_declarations_may_stand_in_a_few_places():
    def text(places: int) -> str:
        return " ; ".join(f"PREFIX p{n}: <urn:{n}:> INSERT DATA {{ p{n}:a p0:b 1 }}" for n in range(places))

    engine = new_engine()
    assert len(run(engine, text(16)).added) == 16
    with pytest.raises(ParsingFailed, match="before the first"):
        run(engine, text(17))
