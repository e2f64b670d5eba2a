"""Updates: every form of SPARQL 1.1 Update, forced bindings, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable

import pyoxigraph as ox
import pytest
from engine_world import NOW, World, ask, new_engine, run

from edge.engine.changes import ChangeSet
from edge.engine.engine import Engine
from edge.engine.general import Rules
from edge.engine.requests import Dataset, UpdateRequest
from edge.protocol.errors import EdgeError, Forbidden, ParsingFailed, UpdateFailed

EX = "http://example.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIX = f"PREFIX ex: <{EX}> PREFIX xsd: <{XSD}> "


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


def engine_with(data: str) -> Engine:
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ {data} }}")
    return engine


def triples(engine: Engine) -> set[str]:
    """The graph in short: `a p b`, and ` g` for what is in a named graph."""
    return {str(quad).replace(f"<{EX}", "").replace(f"<{XSD}", "").replace(">", "") for quad in engine.graph.quads()}


def refused(engine: Engine, text: str, error: type[EdgeError], **more: object) -> str:
    before, graphs = set(engine.graph.quads()), set(engine.graph.named_graphs())
    with pytest.raises(error) as caught:
        run(engine, text, **more)
    assert set(engine.graph.quads()) == before
    assert set(engine.graph.named_graphs()) == graphs
    return caught.value.description


# Each form beside Oxigraph

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
def test_form_does_what_it_does_in_oxigraph(form):
    world = World()
    world.update(SEED.split(" ; "), PREFIX)
    world.update(FORMS[form].split(" ; "), PREFIX)
    world.check_restored()
    world.check_no_leak()


# Changes are exact


def test_no_change_is_no_change():
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


def test_changes_say_what_is_new_and_what_is_gone():
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


def test_a_pattern_of_hundreds_of_triples():
    numbers = range(300)
    engine = engine_with(" . ".join(f"ex:a ex:p{n} {n}" for n in numbers))
    pattern = " . ".join(f"ex:a ex:p{n} ?x{n}" for n in numbers)
    assert len(run(engine, f"{PREFIX} DELETE WHERE {{ {pattern} }}").removed) == 300


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
def test_what_is_no_update_is_refused_before_it_runs(text):
    engine = Engine(Rules(allow_load=True), lambda document: [])
    with pytest.raises(ParsingFailed):
        engine.prepare(UpdateRequest(text))


# Text


def test_declarations_between_operations():
    engine = new_engine()
    run(
        engine,
        "PREFIX a: <http://example.org/> INSERT DATA { a:a a:p 1 } ; "
        "PREFIX b: <http://example.org/b> BASE <http://example.org/base/> INSERT DATA { a:a b:p <x> } ; "
        "PREFIX a: <http://example.org/other/> INSERT { a:a b:p ?o } WHERE { ?s b:p ?o FILTER(isIRI(?o)) }",
    )
    assert triples(engine) == {
        'a p "1"^^integer',
        "a bp base/x",
        "other/a bp base/x",
    }


def test_relative_iris_and_base():
    engine = Engine(Rules(base_iri="http://example.org/dir/doc"), lambda document: [])
    run(engine, "INSERT DATA { <s> <../p> <#f> , <?q> , </r> , <> }")
    run(engine, "BASE <http://example.org/b/> INSERT { GRAPH <g> { ?s <p> <o> } } WHERE { ?s <../p> <../dir/doc#f> }")
    run(engine, "BASE <sub/> PREFIX : <x#> CREATE GRAPH :g")
    assert triples(engine) == {
        "dir/s p dir/doc#f",
        "dir/s p dir/doc?q",
        "dir/s p r",
        "dir/s p dir/doc",
        "dir/s b/p b/o b/g",
    }
    assert ex("dir/sub/x#g") in engine.graph.named_graphs()


def test_comments_strings_and_white_space_are_no_syntax():
    engine = new_engine()
    run(
        engine,
        "#{ ; INSERT\r\n\tPREFIX\n ex:#}\n<http://example.org/>\r\n"
        "INSERT#'\nDATA\t{#}\nex:a ex:p '} ; DROP ALL #' , \"{\" , '''it's } ; ''' ,"
        '"""a "quoted" } """ # }\n}\t;\n\n#end',
    )
    assert len(engine.graph) == 4
    run(engine, "PREFIX ex:<http://example.org/>DELETE{?s ex:p?o}INSERT{?s ex:q?o}WHERE{?s ex:p?o FILTER(?o!='{')#}\n}")
    assert sorted(quad.predicate.value[-1] for quad in engine.graph.quads()) == ["p", "q", "q", "q"]


def test_escapes_and_unicode():
    engine = new_engine()
    run(engine, PREFIX + r"INSERT DATA { ex:caf\u00e9 ex:p 1 }".replace(r"\u00e9", "é"))
    run(engine, PREFIX + r"INSERT DATA { <http://example.org/caf\u00e9> ex:q 'a\tb\u00e9\U0001F600\\' ; ex:a\,b '\'' }")
    run(engine, PREFIX + "INSERT { ?été ex:r ?o } WHERE { ?été ex:q ?o }")
    values = {(q.subject.value, q.predicate.value.removeprefix(EX), q.object.value) for q in engine.graph.quads()}
    café = EX + "café"
    assert values == {(café, "p", "1"), (café, "q", "a\tbé😀\\"), (café, "a,b", "'"), (café, "r", "a\tbé😀\\")}


def test_now_is_one_value_for_a_request_and_the_time_it_was_given():
    engine = engine_with("ex:a ex:p 1 , 2")
    text = "INSERT { ex:a ex:at ?t } WHERE { ?s ?p ?o BIND(NOW() AS ?t) }"
    changes = run(engine, f"{PREFIX} {text} ; {text.replace('ex:at', 'ex:again')}", now=1_700_000_000_123_456)
    values = {quad.object for quad in changes.added}
    assert values == {ox.Literal("2023-11-14T22:13:20.123456Z", datatype=ox.NamedNode(XSD + "dateTime"))}
    assert len(changes.added) == 2


def test_where_is_evaluated_once():
    engine = engine_with("ex:a ex:p 1")
    changes = run(
        engine,
        PREFIX + "DELETE { ex:a ex:id ?u } INSERT { ex:a ex:id ?u . ?u ex:of ex:a } WHERE { BIND(UUID() AS ?u) }",
    )
    assert {changes.added[0].object} == {changes.added[1].subject}


# Fetching


@pytest.mark.parametrize(
    "text",
    [
        "INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
        "INSERT { ?s ?p ?o } WHERE { service silent ?x { ?s ?p ?o } }",
        "INSERT { ?s ?p ?o } WHERE { ?s ?p 1.SERVICE<http://127.0.0.1:1/>{ ?s ?p ?o } }",
        "INSERT DATA { <a:a> <a:b> '#' } ; INSERT { ?s ?p ?o } WHERE { { SELECT * { SERVICE <a:x> { ?s ?p ?o } } } }",
        "LOAD <http://127.0.0.1:1/>",
        "load silent <http://127.0.0.1:1/> INTO GRAPH <a:g>",
        "INSERT DATA { <a:a> <a:p> 1 } ; LOAD <http://127.0.0.1:1/>",
    ],
)
def test_nothing_is_fetched_unless_it_is_allowed(text):
    with pytest.raises(Forbidden):
        new_engine().prepare(UpdateRequest(text))


def test_names_that_look_like_fetching_are_fine():
    engine = new_engine()
    text = (
        "PREFIX SERVICE: <http://example.org/> PREFIX load: <http://example.org/> # SERVICE <x> LOAD\n"
        "INSERT DATA { SERVICE:SERVICE load:LOAD 'SERVICE <x> { }' , \"LOAD <x>\" , 'x'@service , <SERVICE> ."
        "_:SERVICE load:a 1 }"
    )
    assert len(run(engine, text).added) == 5
    run(engine, "INSERT { ?service <a:load> ?load } WHERE { ?service ?load 'x'@service }")


def test_load_adds_a_document_to_a_graph():
    def document(iri: str) -> Iterable[ox.Quad]:
        if iri.endswith("none"):
            raise UpdateFailed("not there")
        return ox.parse(f"<{iri}> <a:p> _:x . _:x <a:p> '01'^^<{XSD}integer> .", format=ox.RdfFormat.TURTLE)

    engine = Engine(Rules(allow_load=True), document)
    changes = run(engine, "LOAD <http://example.org/doc> INTO GRAPH <a:g> ; LOAD <http://example.org/doc>")
    assert len(changes.added) == 4
    assert changes.created == (ox.NamedNode("a:g"),)
    assert len({quad.object for quad in changes.added if quad.object != ox.Literal(1)}) == 2, "blank nodes of its own"
    assert "not there" in refused(
        engine, "INSERT DATA { <a:b> <a:b> 1 } ; LOAD <http://example.org/none>", UpdateFailed
    )
    assert run(engine, "LOAD SILENT <http://example.org/none>") == ChangeSet()


def test_judging_evaluates_nothing():
    rules = Rules(allow_service=True, allow_load=True)

    def never(document: str) -> list[ox.Quad]:
        raise AssertionError(document)

    engine = Engine(rules, never)
    engine.prepare(
        UpdateRequest(
            "LOAD <http://127.0.0.1:1/x> ; INSERT { ?s ?p ?o } WHERE { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }"
        )
    )


# Protocol dataset


def test_using_graph_uri_is_the_dataset_of_where():
    data = "ex:a ex:p 1 . GRAPH ex:g1 { ex:a ex:p 2 } GRAPH ex:g2 { ex:a ex:p 3 }"
    insert = PREFIX + "INSERT { ex:hit ex:is ?o } WHERE { ?s ex:p ?o }"
    for dataset, expected in (
        (Dataset((EX + "g1",), ()), {2}),
        (Dataset((EX + "g1", EX + "g2"), None), {2, 3}),
        (Dataset(None, (EX + "g1",)), set()),
    ):
        changes = run(engine_with(data), insert, dataset=dataset)
        assert {int(quad.object.value) for quad in changes.added} == expected
        assert all(isinstance(quad.graph_name, ox.DefaultGraph) for quad in changes.added)
    changes = run(engine_with(data), PREFIX + "DELETE WHERE { ?s ex:p ?o }", dataset=Dataset((EX + "g1",), ()))
    assert changes == ChangeSet(), "what is found in the graph is deleted from the default graph, which has it not"


def test_using_graph_uri_beside_using_or_with_is_refused():
    dataset = Dataset((EX + "g1",), ())
    for text in ("INSERT {} USING <a:g> WHERE {}", "WITH <a:g> INSERT {} WHERE {}"):
        with pytest.raises(ParsingFailed, match="dataset"):
            new_engine().prepare(UpdateRequest(text, dataset))


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
    text = PREFIX + "INSERT { ?s ex:hit ?b } WHERE { ?s ex:q ?x FILTER(sameTerm(?x, ?b)) }"
    assert "blank node" in refused(engine, text, UpdateFailed, bindings={"b": node})


def test_a_forced_binding_to_a_triple_term():
    engine = engine_with("ex:a ex:p 1")
    term = ox.Triple(ex("s"), ex("p"), ox.Literal("01", datatype=ox.NamedNode(XSD + "integer")))
    changes = run(engine, PREFIX + "INSERT { ex:a ex:says ?t } WHERE { ?s ex:p ?o }", bindings={"t": term})
    assert changes.added[0].object == ox.Triple(ex("s"), ex("p"), ox.Literal(1))
    text = PREFIX + "INSERT { ex:a ex:says ?t } WHERE { ?s ?p ?o FILTER(sameTerm(?o, ?t)) }"
    assert "triple term" in refused(engine, text, UpdateFailed, bindings={"t": term})


def test_forced_bindings_that_cannot_stand_where_the_variable_stands():
    engine = engine_with("ex:a ex:p 1")
    for where in ("BIND(1 AS ?v)", "VALUES ?v { 1 2 }", "SELECT ?v { ?s ?p ?v }", "GRAPH ?v { ?s ?p ?o FILTER(true) }"):
        text = f"{PREFIX} INSERT {{ ex:a ex:q ?v }} WHERE {{ {where} }}"
        assert "forced bindings" in refused(engine, text, UpdateFailed, bindings={"v": ox.Literal(1)})


def test_forced_bindings_in_positions_where_the_term_cannot_be():
    engine = engine_with("ex:a ex:p 1")
    for template in ("?v ex:p 1", "ex:a ?v 1", "GRAPH ?v { ex:a ex:p 1 }"):
        text = f"{PREFIX} INSERT {{ {template} }} WHERE {{ }}"
        assert run(engine, text, bindings={"v": ox.Literal("x")}) == ChangeSet()
    assert run(engine, PREFIX + "DELETE WHERE { ?v ?p ?o }", bindings={"v": ox.Literal("x")}) == ChangeSet()
    assert (
        run(engine, PREFIX + "DELETE WHERE { GRAPH ?v { ?s ?p ?o } }", bindings={"v": ox.Literal("x")}) == ChangeSet()
    )


def test_a_forced_binding_that_nothing_mentions_is_no_matter():
    assert len(run(new_engine(), "INSERT DATA { <a:a> <a:p> '?v' }", bindings={"v": ox.Literal(1)}).added) == 1


def test_the_same_text_with_other_bindings():
    engine = new_engine()
    text = PREFIX + "DELETE { ?s ex:p ?old } INSERT { ?s ex:p ?new } WHERE { OPTIONAL { ?s ex:p ?old } }"
    for number in range(3):
        for name in ("a", "b"):
            run(engine, text, bindings={"s": ex(name), "new": ox.Literal(number)})
    assert triples(engine) == {'a p "2"^^integer', 'b p "2"^^integer'}


def test_one_literal_policy_for_all_ways_in():
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
    engine = Engine(Rules(union_default_graph=True), lambda document: [])
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 1 . GRAPH ex:g { ex:b ex:p 2 } }")
    changes = run(engine, PREFIX + "INSERT { ?s ex:hit ?o } WHERE { ?s ex:p ?o }")
    assert len(changes.added) == 2
    changes = run(engine, PREFIX + "WITH ex:g INSERT { ?s ex:here ?o } WHERE { ?s ex:p ?o }")
    assert changes.added == (ox.Quad(ex("b"), ex("here"), ox.Literal(2), ex("g")),)
