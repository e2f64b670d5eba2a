"""Updates as text: declarations, comments, escapes, NOW, datasets, and no unauthorized fetch."""

from __future__ import annotations

from collections.abc import Iterable

import pyoxigraph as ox
import pytest
from engine_client import EX, PREFIX, XSD, engine_with, ex, refused, triples
from engine_world import ask, new_engine, run

from edge.engine.engine import Engine
from edge.engine.requests import Dataset, QueryRequest, UpdateRequest
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import Forbidden, ParsingFailed, UpdateFailed
from tests.support.settings import query_rules

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
    engine = Engine(query_rules(base_iri="http://example.org/dir/doc"), lambda document: [])
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


def test_comments_strings_and_white_space_are_not_syntax():
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


def test_now_is_one_value_for_a_request():
    engine = engine_with("ex:a ex:p 1 , 2")
    text = "INSERT { ex:a ex:at ?t } WHERE { ?s ?p ?o BIND(NOW() AS ?t) }"
    changes = run(engine, f"{PREFIX} {text} ; {text.replace('ex:at', 'ex:again')}", now=1_700_000_000_123_456)
    values = {quad.object for quad in changes.added}
    assert values == {ox.Literal("2023-11-14T22:13:20.123456Z", datatype=ox.NamedNode(XSD + "dateTime"))}
    assert len(changes.added) == 2


def test_the_where_clause_is_evaluated_once():
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

    engine = Engine(query_rules(allow_load=True), document)
    changes = run(engine, "LOAD <http://example.org/doc> INTO GRAPH <a:g> ; LOAD <http://example.org/doc>")
    assert len(changes.added) == 4
    assert changes.created == (ox.NamedNode("a:g"),)
    assert len({quad.object for quad in changes.added if quad.object != ox.Literal(1)}) == 2, "blank nodes of its own"
    assert "not there" in refused(
        engine, "INSERT DATA { <a:b> <a:b> 1 } ; LOAD <http://example.org/none>", UpdateFailed
    )
    assert run(engine, "LOAD SILENT <http://example.org/none>") == ChangeSet()


def test_checking_a_text_evaluates_nothing():
    rules = query_rules(allow_service=True, allow_load=True)

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


def test_a_graph_of_the_dataset_that_is_not_an_absolute_iri_is_refused():
    update = PREFIX + "INSERT { ex:hit ex:is ?o } WHERE { ?s ex:p ?o }"
    assert "absolute IRI" in refused(engine_with("ex:a ex:p 1"), update, ParsingFailed, dataset=Dataset(("g1",), ()))


def test_using_graph_uri_together_with_using_or_with_is_refused():
    dataset = Dataset((EX + "g1",), ())
    for text in ("INSERT {} USING <a:g> WHERE {}", "WITH <a:g> INSERT {} WHERE {}"):
        with pytest.raises(ParsingFailed, match="dataset"):
            new_engine().prepare(UpdateRequest(text, dataset))


@pytest.mark.parametrize(
    "text",
    [
        "LOAD ;",
        "LOAD",
        "LOAD <a:doc> INTO",
        "LOAD <a:doc> ; INSERT DATA { <a:a> <a:p> }",
        "INSERT DATA { <a:a> <a:p> } ; LOAD <a:doc>",
        "INSERT { ?s ?p ?o } WHERE { SERVICE }",
        "INSERT { ?s ?p ?o } WHERE { SERVICE <a:x> { ?s ?p } }",
        "LOAD <a:doc> ; DELETE WHERE { SERVICE <a:x> { ?s ?p ?o } }",
        "LOAD <a:doc> ; PREFIX a: <a:> INSERT DATA { a:a a:p }",
    ],
)
def test_a_text_that_is_not_legal_is_refused_as_such_before_anything_is_forbidden(text):
    """The check fetches nothing."""
    refused(new_engine(), text, ParsingFailed)


@pytest.mark.parametrize("text", ["SELECT * { SERVICE }", "SELECT * { SERVICE <a:x> { ?s ?p } }", "ASK { SERVICE <a:"])
def test_a_query_that_is_not_legal_is_refused_as_such_before_anything_is_forbidden(text):
    with pytest.raises(ParsingFailed):
        ask(new_engine(), text)
    with pytest.raises(ParsingFailed):
        new_engine().subscribe(QueryRequest(text), lambda _: None, None, 0)
