"""Long INSERT DATA and DELETE DATA, which Oxigraph parses, have the effect of token-by-token compilation."""

from __future__ import annotations

import re

import pytest
from engine_client import EX, PREFIX, XSD, ex, refused, triples
from engine_world import NOW, new_engine, run
from generated_data import requests, spoiled
from hypothesis import HealthCheck, example, given, settings
from oracle import blank_nodes, canonical

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import UpdateRequest
from edge.engine.sparql.plan_cache import LONGEST_TEXT
from edge.engine.updates import data_compiler, update_compiler
from edge.engine.updates.data_compiler import data_plan
from edge.engine.updates.update_plan import Data
from edge.protocol.errors import EdgeError, ParsingFailed
from edge.sparql.tokens import MAX_DEPTH
from tests.support.examples import examples

PADDING = "\n#" + "x" * LONGEST_TEXT


def plan(text: str) -> list[Data] | None:
    """Return the operations of a request that is parsed as data."""
    found = data_plan(PREFIX + text, QueryRules())
    return None if found is None else list(found.operations)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA {}",
        "INSERT DATA { ex:a ex:p 1 , -1.5e0 , true , 'x'@en-us , 'x'^^xsd:byte ; a ex:T . } ;",
        "insert#}\ndata\r\n{ GRAPH ex:g { ex:a ex:p ex:b } . ex:a ex:p ex:b GRAPH ex:h { ex:a ex:p 1 } }#{",
        """INSERT DATA { ex:a ex:p '}' , "{ # '" , '''"it's" }\n''' , ""\"} ; DROP ALL "quoted\\""\"" , '' . }""",
        r"INSERT DATA { ex:a ex:p '\'}' , 'a\\' , '\u007B' , ex:x\'\#y , <http://example.org/#\u00e9> }",
        "INSERT DATA { _:a ex:p ( 1 [ ex:q ( _:a ) ] ) } ; INSERT DATA { _:b ex:p [] }",
        "INSERT DATA { ex:a ex:p 1 # } '\r } ; PREFIX : <x#> BASE <y/> DELETE DATA { :a ex:p <> } ; DELETE DATA {}",
        "INSERT DATA { " + "ex:a ex:p 1.5 , 'a-b' . # c\n" * 1000 + " }",
    ],
)
def test_data_in_any_form_is_recognised(text):
    assert plan(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CLEAR ALL",
        "DELETE WHERE { ex:a ex:p ex:o }",
        "INSERT { ex:a ex:p ex:o } WHERE {}",
        "INSERT DATA { ex:a ex:p 1 } ; DROP ALL",
        "INSERT DATA { ex:a ex:p 1 } # ;\n INSERT DATA { ex:a ex:p 2 }",
        "INSERT DATA { ex:a ex:p 1 } ; PREFIX a: <a:>",
        "INSERT DATA { ex:a ex:p 1 } ; ; INSERT DATA { ex:a ex:p 2 }",
        "INSERT DATA { ex:a ex:p 1",
        "INSERT DATA { ex:a ex:p 'x }",
        "INSERT DATA { ex:a ex:p <<( ex:a ex:p 1 )>> }",
        "INSERT DATA { ex:a ex:p 1 ~ ex:r }",
        "INSERT DATA { ex:a ex:p 1 {| ex:q 2 |} }",
        "INSERT DATA { ex:a ex:p 'x'@en--ltr }",
        "INSERT DATA { ex:a ex:p ?o }",
        "INSERT DATA { ex:a ex:p 'x' 'y' }",
        "INSERT DATA { ex:a ex:p unknown:o }",
        "DELETE DATA { ex:a ex:p _:b }",
        "DELETE DATA { ex:a ex:p [] }",
        "DELETE DATA { ex:a ex:p ( 1 ) }",
        "INSERT DATA { _:a ex:p 1 } ; INSERT DATA { _:a ex:p 2 }",
        "INSERT DATA { _:a ex:p 1 } ; DELETE DATA { ex:a ex:p 1 } ; INSERT DATA { _:a ex:p 2 }",
        "INSERT DATA { ex:a ex:p " + "[ ex:p " * MAX_DEPTH + "1" + "]" * MAX_DEPTH + "}",
        "INSERT DATA {} ; DELETE DATA {} ;" * 10,
        "INSERT DATA { ex:a ex:p 1 GRAPH ex:h { # }\n } }",
    ],
)
def test_other_or_invalid_operations_are_left_to_the_general_parser(text):
    assert plan(text) is None


def test_operations_of_one_kind_are_one_as_far_as_the_declarations_are_the_same():
    insert, delete = "INSERT DATA { ex:a ex:p 1 } ;", "DELETE DATA { ex:a ex:p 2 } ;"
    assert [part.inserts for part in plan(insert + insert + delete + delete + insert) or []] == [True, False, True]
    assert [part.inserts for part in plan(insert + PREFIX + insert) or []] == [True, True]


REPLACING = "DROP SILENT GRAPH <urn:g> ;\nCREATE SILENT GRAPH <urn:g> ;\nCLEAR DEFAULT ;\n"


def test_operations_on_whole_graphs_may_precede_the_data():
    data = "INSERT DATA { <urn:s> ex:p 1 GRAPH <urn:g> { <urn:s> ex:p 2 , [] } }"
    found = data_plan(REPLACING + PREFIX + data, QueryRules())
    assert found is not None
    assert [type(each).__name__ for each in found.operations] == ["Manage"] * 3 + ["Data"]
    before = "INSERT DATA { <urn:s> <urn:old> 1 GRAPH <urn:g> { <urn:s> <urn:old> 2 } }"
    results = []
    for padding in ("", PADDING):
        engine = new_engine()
        run(engine, before)
        results.append(run(engine, REPLACING + PREFIX + data + padding).sizes)
        results.append(len(triples(engine)))
    assert results[:2] == results[2:] == [(3, 2, 0, 0), 3]


@pytest.mark.parametrize(
    "leading",
    ["DROP SILENT GRAPH <g> ;", "DROP SILENT GRAPH <urn:a b> ;", "DROP SILENT GRAPH <urn:\\u0041> ;", "DROP ALL ;"],
)
def test_other_operations_before_the_data_are_left_to_the_general_parser(leading):
    assert data_plan(leading + "INSERT DATA { <urn:a> <urn:p> 1 }", QueryRules()) is None


def test_only_long_texts_use_the_data_reader(monkeypatch):
    read: list[str] = []
    monkeypatch.setattr(update_compiler, "data_plan", lambda text, rules: read.append(text))
    run(new_engine(), "INSERT DATA { <a> <b> 1 }")
    assert not read
    run(new_engine(), "INSERT DATA { <a> <b> 1 }" + PADDING)
    assert len(read) == 1


def test_many_triples_in_all_graphs():
    engine = new_engine()
    block = " ".join(f"ex:s{n} ex:p {n} , 'n{n % 7}' ." for n in range(5000))
    text = f"INSERT DATA {{ {block} GRAPH ex:g {{ {block} }} }}"
    assert plan(text) is not None
    assert run(engine, PREFIX + text).sizes == (20_000, 0, 1, 0)
    quads = {str(quad).replace(EX, "") for quad in engine.graph.quads()}
    both_graphs = {(f"<s{n}> <p> {term}", g) for n in range(5000) for term in terms(n) for g in ("", " <g>")}
    assert quads == {text + graph for text, graph in both_graphs}
    assert run(engine, PREFIX + text).sizes == (0, 0, 0, 0)
    assert run(engine, PREFIX + text.replace("INSERT", "DELETE")).sizes == (0, 20_000, 0, 0)
    assert ex("g") in engine.graph.named_graphs()


def terms(number: int) -> tuple[str, str]:
    return f'"{number}"^^<{XSD}integer>', f'"n{number % 7}"'


def test_operations_see_the_effects_of_earlier_ones():
    engine = new_engine()
    one, other = "DATA { ex:a ex:p 1 , 01 , 2 }", "DATA { ex:a ex:p 2 , 3 }"
    changes = run(engine, f"{PREFIX} INSERT {one} ; DELETE {other} ; INSERT DATA {{ ex:a ex:p 4 }} {PADDING}")
    assert changes.sizes == (2, 0, 0, 0)
    assert triples(engine) == {f'a p "{n}"^^integer' for n in (1, 4)}


def test_blank_nodes_are_new_ones_each_time_and_one_label_is_one_node():
    engine = new_engine()
    text = PREFIX + "INSERT DATA { _:a ex:p _:a , [] . GRAPH ex:g { _:a ex:q _:b } }"
    prepared = engine.prepare(UpdateRequest(text + PADDING))
    for _ in range(2):
        engine.publish(engine.execute([prepared], NOW))
    quads = list(engine.graph.quads())
    assert len(quads) == 6
    assert len(blank_nodes(quads)) == 6
    assert len({quad.subject for quad in quads}) == 2


@pytest.mark.parametrize("brackets", ["[ ex:p ", "("])
@pytest.mark.parametrize("depth", [MAX_DEPTH, 5000])
@pytest.mark.parametrize("verb", ["INSERT", "DELETE"])
def test_deep_nesting_is_refused_and_does_not_end_the_process(verb, depth, brackets):
    closing = {"[": "]", "(": ")"}[brackets[0]]
    text = f"{verb} DATA {{ ex:a ex:p {brackets * depth}1{closing * depth} }}"
    assert "nested deeper" in refused(new_engine(), PREFIX + text + PADDING, ParsingFailed)
    assert "nested deeper" in refused(new_engine(), PREFIX + text.replace(closing, "") + PADDING, ParsingFailed)


def test_deepest_allowed_nesting_is_accepted():
    engine = new_engine()
    depth = MAX_DEPTH - 1
    text = f"INSERT DATA {{ ex:a ex:p {'[ ex:p ' * depth}1{']' * depth} }}"
    assert plan(text) is not None
    assert run(engine, PREFIX + text + PADDING).sizes == (depth + 1, 0, 0, 0)


def test_a_wrong_text_is_refused_with_the_position():
    text = "INSERT DATA {\n" + "<urn:a> <urn:b> 1 .\n" * 3000 + "<urn:a> <urn:b> oops }"
    assert "line 3002, column " in refused(new_engine(), text, ParsingFailed)


# Any data

SEED = PREFIX + (
    "INSERT DATA { ex:a ex:a ex:a , 1 , 1.5 , true , '' ; a ex:b , ex:a . ex:b ex:b ex:b , '' . "
    "GRAPH ex:a { ex:a ex:b ex:a } GRAPH ex:b { ex:a a 1 } }"
)


def outcome(text: str) -> object:
    """Return the effect of an update on a graph, or its error."""
    engine = new_engine()
    run(engine, SEED)
    try:
        changes = run(engine, text)
    except EdgeError as error:
        return type(error), error.description
    names = set(changes.created), set(changes.dropped), set(engine.graph.named_graphs())
    return changes.sizes, canonical(changes.added), set(changes.removed), canonical(engine.graph.quads()), names


often = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def both(text: str) -> tuple[object, object]:
    """Return the outcome of a long text, and that of token-by-token compilation."""
    text += PADDING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update_compiler, "data_plan", lambda text, rules: None)
        slow = outcome(text)
    return outcome(text), slow


def cut_often(patch: pytest.MonkeyPatch) -> None:
    """Cut data into pieces at every possible position."""
    patch.setattr(data_compiler, "_PIECE", 1)
    short = data_compiler._STRETCH.pattern.replace("{0,1000}", "{0,1}").replace("{1,200}+", "{1,7}+")
    assert len(short) == len(data_compiler._STRETCH.pattern) - 5
    patch.setattr(data_compiler, "_STRETCH", re.compile(short, re.DOTALL))


@often
@given(requests())
def test_data_that_is_cut_into_pieces_does_the_same(text):
    with pytest.MonkeyPatch.context() as patch:
        cut_often(patch)
        fast, slow = both(text)
    assert fast == slow


def test_no_sequence_of_terms_is_long():
    """The garbage collector and the deallocation would hold all threads for milliseconds."""
    (operation,) = plan("INSERT DATA { " + " . ".join(f"ex:s{n} ex:p {n % 700}" for n in range(3_000)) + " }")
    assert max(map(len, operation.terms.pieces)) <= 500
    assert len(operation.terms) == len(set(operation.terms)) == 3_000 + 700 + 2


def test_a_long_text_is_cut_where_triples_end(monkeypatch):
    text = "INSERT DATA { " + "ex:a.b ex:p 1.5 , 'x. y' # z. \n ; ex:q [ ex:r ( 2 'z. '@en ) ] . " * 3 + "}"
    whole = plan(text)
    cut_often(monkeypatch)
    assert [len(operation.pieces) for operation in data_compiler._operations(PREFIX + text)] == [4]
    cut = plan(text)
    assert [part.size for part in cut] == [part.size for part in whole] == [3 * 6 + 2]


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        ("GRAPH ex:g { " + "ex:a.b ex:p 1.5 , 'x. y' # z. \n ; ex:q [ ex:r ( 2 'z. '@en ) ] . " * 3 + "}", 4),
        ("GRAPH # GRAPH ex:no\n <http://x> # GRAPH ex:no\n { " + "ex:a ex:p 1 . " * 3 + "ex:a ex:p 2 }", 4),
        ("ex:a ex:p 1 . graph<b>{ ex:a ex:p 2 . ex:a ex:p 3 } . GRAPH ex:h { ex:a ex:p 4 } ex:a ex:p 5", 4),
        (r"GRAPH ex:a\,b { ex:a ex:p 1 . ex:a ex:p 2 }", 1),
    ],
    ids=["graph", "comments", "two graphs", "escapes in its name"],
)
def test_graph_block_is_split_into_pieces(monkeypatch, data, pieces):
    text = f"{PREFIX} INSERT DATA {{ {data} }}"
    with monkeypatch.context() as patch:
        cut_often(patch)
        (operation,) = data_compiler._operations(text)
        assert len(list(operation.pieces)) == pieces
        fast, slow = both(text)
    assert fast == slow


LABELS = "_:a ex:p _:b . _:b ex:p ( _:a [ ex:q _:a-1 ] ) , '_:a' , <urn:_:a> . # _:a\n _:a ex:q 1 . "


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (LABELS, False),
        (f"GRAPH ex:g {{ {LABELS} }} GRAPH ex:h {{ {LABELS} }}", False),
        ("_:a ex:p ex:x_:a , ex:a._:a . _:a ex:p 1 . ", False),
        ("_:a.b ex:p _:é . _:a.b ex:q _:é . ", False),
        ("_:a ex:p 1 . _:a _:p 1 . ", True),
        ("_:a ex:p 1 . _:a ex:p '1'^^_:t . ", True),
        ("_:a ex:p 1 . _:a ex:p '1'^^ # c\n _:t . ", True),
        ("_:a ex:p 1 . GRAPH _:g { _:a ex:p 1 } ", True),
        ("_:a ex:p 1 . } ; INSERT DATA { _:b ex:p 1 . _:a ex:p 1 . ", True),
    ],
)
def test_a_label_is_one_node_in_all_pieces(monkeypatch, data, wrong):
    cut_often(monkeypatch)
    fast, slow = both(f"{PREFIX} INSERT DATA {{ {data} }}")
    assert fast == slow
    assert (fast[0] is ParsingFailed) == wrong


def test_long_data_with_labels_in_a_graph_is_read_in_pieces(monkeypatch):
    texts: list[int] = []
    real = data_compiler._parsed
    monkeypatch.setattr(
        data_compiler,
        "_parsed",
        lambda inserts, given, rules: real(inserts, (texts.append(len(text)) or text for text in given), rules),
    )
    data = " . ".join(f"_:n{n} ex:next _:n{n + 1}" for n in range(50_000))
    (operation,) = plan(f"INSERT DATA {{ GRAPH ex:g {{ {data} }} }}") or ()
    assert (operation.size, len(operation.terms)) == (50_000, 50_001 + 2)
    assert len(texts) > 3
    assert max(texts) < sum(texts) / 3


@often
@given(requests())
def test_data_does_the_same_however_it_is_read(text):
    fast, slow = both(text)
    assert fast == slow


@often
@example("INSERT DATA { <a:a>#\ra1 } ")
@given(spoiled())
def test_a_spoiled_text_is_refused_or_means_the_same(text):
    fast, slow = both(text)
    assert fast == slow
