"""A client with permission for some graphs: it sees and changes no others, whatever it sends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from edge.engine.requests import Dataset, Graph, QueryRequest, Solutions, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden
from tests.support.examples import examples
from tests.support.waiting import wait_for

MINE, OTHER, THEIRS = "urn:g:mine", "urn:g:other", "urn:g:theirs"
SECRET = "secret"

STORY = f"""
INSERT DATA {{ <urn:s> <urn:p> 'default-{SECRET}' .
  GRAPH <{MINE}> {{ <urn:s> <urn:p> 'mine' . <urn:s> <urn:next> <urn:t> }}
  GRAPH <{OTHER}> {{ <urn:s> <urn:p> 'other' . <urn:t> <urn:next> <urn:u> }}
  GRAPH <{THEIRS}> {{ <urn:s> <urn:p> 'theirs-{SECRET}' . <urn:t> <urn:next> <urn:{SECRET}> }} }}
"""

LIMITED = Access("lamp", read=frozenset({MINE, OTHER}), write=frozenset({MINE}))


def settle(engine: Any) -> None:
    """Wait until subscribers have the results of re-evaluated queries."""
    wait_for(lambda: not engine.pending_evaluations)
    engine.on_writer(lambda: None).result()


@pytest.fixture(params=[False, True], ids=["store", "union"])
def engine(request: Any) -> Iterator[Any]:
    engine = open_engine(None, EngineSettings(default_graph_as_union=request.param))
    engine.update([UpdateRequest(STORY)]).result()
    yield engine
    engine.close()


@pytest.fixture
def plain() -> Iterator[Any]:
    engine = open_engine(None, EngineSettings())
    engine.update([UpdateRequest(STORY)]).result()
    yield engine
    engine.close()


def everything(engine: Any) -> set[str]:
    found = engine.query(QueryRequest("SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }")).result()
    return {str(row) for row in found.rows}


def shown(result: Any) -> str:
    if isinstance(result, Solutions):
        return " ".join(str(term) for row in result.rows for term in row)
    return " ".join(map(str, result.triples)) if isinstance(result, Graph) else str(result)


def asked(engine: Any, sparql: str, dataset: Dataset | None = None, access: Access = LIMITED) -> str:
    return shown(engine.query(QueryRequest(sparql, dataset or Dataset(), access)).result())


def subscribed(engine: Any, sparql: str, dataset: Dataset | None = None, access: Access = LIMITED) -> str:
    notes: list[Any] = []
    subscription = engine.subscribe(QueryRequest(sparql, dataset or Dataset(), access), notes.append).result()
    engine.unsubscribe(subscription.spuid).result()
    return " ".join(str(term) for row in notes[0].delta.added for term in row)


READS = {
    "default graph": "SELECT * { ?s ?p ?o }",
    "constant in the default graph": "SELECT ?o { <urn:s> <urn:p> ?o }",
    "GRAPH variable": "SELECT * { GRAPH ?g { ?s ?p ?o } }",
    "GRAPH constant": f"SELECT * {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }}",
    "GRAPH from VALUES": f"SELECT * {{ VALUES ?g {{ <{THEIRS}> }} GRAPH ?g {{ ?s ?p ?o }} }}",
    "GRAPH from BIND": f"SELECT * {{ BIND(IRI('{THEIRS}') AS ?g) GRAPH ?g {{ ?s ?p ?o }} }}",
    "path": "SELECT * { GRAPH ?g { ?s <urn:next>+ ?o } }",
    "path over the default graph": "SELECT * { <urn:s> (<urn:next>|<urn:p>)* ?o }",
    "FROM": f"SELECT * FROM <{THEIRS}> {{ ?s ?p ?o }}",
    "FROM with mine": f"SELECT * FROM <{MINE}> FROM <{THEIRS}> {{ ?s ?p ?o }}",
    "FROM NAMED": f"SELECT * FROM NAMED <{THEIRS}> {{ GRAPH ?g {{ ?s ?p ?o }} }}",
    "from in lower case and a prefix": "PREFIX g: <urn:g:> SELECT * from g:theirs { ?s ?p ?o }",
    "FROM relative": "BASE <urn:g:> SELECT * FROM <urn:g:theirs> { ?s ?p ?o }",
    "sub-select": f"SELECT * {{ {{ SELECT ?o {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} }} }}",
    "OPTIONAL": f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p 'mine' }} OPTIONAL {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} }}",
    "UNION": f"SELECT * {{ {{ ?s ?p ?o }} UNION {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} }}",
    "aggregate": f"SELECT (MAX(?o) AS ?m) {{ GRAPH <{THEIRS}> {{ ?s <urn:p> ?o }} }} GROUP BY ?s",
    "CONSTRUCT": "CONSTRUCT { ?s ?p ?o } WHERE { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }",
    "CONSTRUCT short form": "CONSTRUCT WHERE { ?s ?p ?o }",
    "DESCRIBE": "DESCRIBE <urn:s>",
    "DESCRIBE by variable": "DESCRIBE ?s { GRAPH ?g { ?s ?p ?o } }",
    "LIMIT": "SELECT * { GRAPH ?g { ?s ?p ?o } } ORDER BY DESC(?o) LIMIT 3",
}


@pytest.mark.parametrize("read", READS)
def test_no_query_or_subscription_reads_a_forbidden_graph(engine, read):
    sparql = READS[read]
    datasets = [
        Dataset(),
        Dataset((THEIRS,), None),
        Dataset(None, (THEIRS, MINE)),
        Dataset((MINE, THEIRS), (THEIRS,)),
    ]
    for dataset in datasets:
        for ask in (asked, subscribed):
            assert SECRET not in ask(engine, sparql, dataset), (ask, dataset)
            assert ask(engine, sparql, dataset, Access("none", read=frozenset())) == "", (ask, dataset)
    everybody = Access("all")
    assert any(SECRET in asked(engine, sparql, dataset, everybody) for dataset in datasets)


HIDDEN = [
    f"ASK {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }}",
    f"ASK FROM <{THEIRS}> {{ ?s ?p ?o }}",
    f"ASK {{ FILTER EXISTS {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} }}",
    "ASK { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } FILTER CONTAINS(STR(?o), 'secret') }",
]


@pytest.mark.parametrize("sparql", HIDDEN)
def test_no_ask_reveals_a_forbidden_graph(engine, sparql):
    assert asked(engine, sparql) == "False"
    notes: list[Any] = []
    engine.subscribe(QueryRequest(sparql, Dataset(), LIMITED), notes.append).result()
    hidden = notes[0].delta
    engine.subscribe(QueryRequest(sparql), notes.append).result()
    assert hidden != notes[1].delta


def test_permitted_graphs_are_visible(plain):
    assert "mine" in asked(plain, f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p ?o }} }}")
    both = asked(plain, "SELECT ?o { GRAPH ?g { ?s <urn:p> ?o } }")
    assert ("mine" in both, "other" in both) == (True, True)
    assert "other" in asked(plain, "SELECT * { ?s ?p ?o }", Dataset((OTHER,)))
    assert "mine" in asked(plain, f"SELECT * FROM <{MINE}> {{ ?s ?p ?o }}")
    only_default = Access("d", read=frozenset({""}))
    assert "default" in asked(plain, "SELECT * { ?s ?p ?o }", access=only_default)
    assert "default" in subscribed(plain, "SELECT * { ?s ?p ?o }", access=only_default)
    assert asked(plain, "SELECT * { GRAPH ?g { ?s ?p ?o } }", access=only_default) == ""


def test_a_subscriber_is_notified_of_changes_in_its_graphs_only(engine):
    notes: list[Any] = []
    query = "SELECT ?o { { ?s <urn:p> ?o } UNION { GRAPH ?g { ?s <urn:p> ?o } } }"
    engine.subscribe(QueryRequest(query, Dataset(), LIMITED), notes.append).result()
    engine.update([UpdateRequest(f"INSERT DATA {{ GRAPH <{THEIRS}> {{ <urn:s> <urn:p> 'more-{SECRET}' }} }}")]).result()
    engine.update([UpdateRequest(f"INSERT DATA {{ <urn:s> <urn:p> 'even-more-{SECRET}' }}")]).result()
    engine.update([UpdateRequest(f"INSERT DATA {{ GRAPH <{OTHER}> {{ <urn:s> <urn:p> 'seen' }} }}")]).result()
    settle(engine)
    assert "seen" in str(notes[-1].delta.added)
    assert SECRET not in str(notes)


def test_clients_that_see_the_same_share_an_spu_and_others_do_not(plain):
    query = "SELECT ?o { GRAPH ?g { ?s <urn:p> ?o } }"
    began = plain.spus
    rights = [LIMITED, Access("another", read=LIMITED.read), Access("third", read=frozenset({MINE})), Access("all")]
    results = [subscribed(plain, query, access=access) for access in rights]
    for access in rights:
        plain.subscribe(QueryRequest(query, Dataset(), access), lambda _: None).result()
    assert plain.spus - began == 3
    assert sorted(results[0].split()) == sorted(results[1].split()) != sorted(results[2].split())


def test_load_names_its_graph_before_anything_is_fetched():
    """An empty document changes nothing, and so does a failed fetch with SILENT: the answer is the same."""
    fetched: list[str] = []

    def load(document: str) -> list[ox.Quad]:
        fetched.append(document)
        return []

    engine = open_engine(None, EngineSettings(allow_load=True), load=load)
    for into in (f" INTO GRAPH <{THEIRS}>", " INTO GRAPH <urn:g:none>", ""):
        for silent in ("", "SILENT "):
            with pytest.raises(Forbidden):
                engine.update([UpdateRequest(f"LOAD {silent}<urn:doc>{into}", access=LIMITED)]).result()
    assert fetched == []
    engine.update([UpdateRequest(f"LOAD <urn:doc> INTO GRAPH <{MINE}>", access=LIMITED)]).result()
    assert fetched == ["urn:doc"]
    engine.close()


TRIPLE = "<urn:x> <urn:p> 1"

WRITES = {
    "default graph": f"INSERT DATA {{ {TRIPLE} }}",
    "a new graph": f"INSERT DATA {{ GRAPH <urn:g:new> {{ {TRIPLE} }} }}",
    "another": f"INSERT DATA {{ GRAPH <{OTHER}> {{ {TRIPLE} }} }}",
    "what is there already": f"INSERT DATA {{ GRAPH <{THEIRS}> {{ <urn:s> <urn:p> 'theirs-{SECRET}' }} }}",
    "what is not there": f"DELETE DATA {{ GRAPH <{THEIRS}> {{ <urn:no> <urn:no> <urn:no> }} }}",
    "what is there": f"DELETE DATA {{ GRAPH <{THEIRS}> {{ <urn:s> <urn:p> 'theirs-{SECRET}' }} }}",
    "mine and another": f"INSERT DATA {{ GRAPH <{MINE}> {{ {TRIPLE} }} GRAPH <{OTHER}> {{ {TRIPLE} }} }}",
    "mine first": f"INSERT DATA {{ GRAPH <{MINE}> {{ {TRIPLE} }} }} ; CLEAR GRAPH <{OTHER}>",
    "WITH": f"WITH <{OTHER}> INSERT {{ {TRIPLE} }} WHERE {{}}",
    "WITH over mine": f"WITH <{MINE}> INSERT {{ GRAPH <{OTHER}> {{ {TRIPLE} }} }} WHERE {{}}",
    "GRAPH variable": f"INSERT {{ GRAPH ?g {{ {TRIPLE} }} }} WHERE {{ GRAPH ?g {{ ?s <urn:p> 'other' }} }}",
    "a computed graph": f"INSERT {{ GRAPH ?g {{ {TRIPLE} }} }} WHERE {{ BIND(IRI(CONCAT('urn:g:', 'new')) AS ?g) }}",
    "DELETE WHERE": f"DELETE WHERE {{ GRAPH <{OTHER}> {{ ?s ?p ?o }} }}",
    "CLEAR GRAPH": f"CLEAR GRAPH <{THEIRS}>",
    "CLEAR SILENT": f"CLEAR SILENT GRAPH <{THEIRS}>",
    "CLEAR of none": "CLEAR GRAPH <urn:g:none>",
    "CLEAR DEFAULT": "CLEAR DEFAULT",
    "CLEAR ALL": "CLEAR ALL",
    "CLEAR NAMED": "CLEAR NAMED",
    "DROP GRAPH": f"DROP GRAPH <{THEIRS}>",
    "DROP of none": "DROP SILENT GRAPH <urn:g:none>",
    "DROP ALL": "DROP ALL",
    "CREATE": "CREATE GRAPH <urn:g:new>",
    "CREATE of one there is": f"CREATE GRAPH <{THEIRS}>",
    "COPY of what may not be seen": f"COPY <{THEIRS}> TO <{MINE}>",
    "ADD of what may not be seen": f"ADD SILENT GRAPH <{THEIRS}> TO <{MINE}>",
    "ADD of the default graph": f"ADD DEFAULT TO <{MINE}>",
    "MOVE of what may only be seen": f"MOVE <{OTHER}> TO <{MINE}>",
    "COPY to another": f"COPY <{MINE}> TO <{THEIRS}>",
    "ADD of nothing": f"ADD SILENT <urn:g:none> TO <{THEIRS}>",
    "WITH hidden": f"WITH <{THEIRS}> DELETE {{ ?s ?p ?o }} INSERT {{ ?s ?p 1 }} WHERE {{ ?s ?p ?o }}",
    "WITH none": "WITH <urn:g:none> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "WITH and a WHERE without solutions": f"WITH <{THEIRS}> INSERT {{ {TRIPLE} }} WHERE {{ ?s <urn:none> ?o }}",
    "WITH and USING": f"WITH <{THEIRS}> DELETE {{ ?s ?p ?o }} USING <{MINE}> WHERE {{ ?s <urn:none> ?o }}",
    "DELETE WHERE hidden": f"DELETE WHERE {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }}",
    "DELETE WHERE none": "DELETE WHERE { GRAPH <urn:g:none> { ?s ?p ?o } }",
    "DELETE WHERE default": "DELETE WHERE { ?s <urn:none> ?o }",
    "a template without solutions": f"DELETE {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} WHERE {{ ?s <urn:none> ?o }}",
    "a general WHERE without solutions": f"INSERT {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }} "
    f"USING NAMED <{MINE}> WHERE {{ GRAPH ?g {{ ?s <urn:none>* ?o FILTER(false) }} ?s ?p ?o }}",
    "a template of two graphs": f"INSERT {{ GRAPH <{MINE}> {{ {TRIPLE} }} GRAPH <{THEIRS}> {{ {TRIPLE} }} }} "
    "WHERE { FILTER(false) }",
    "a template with an unbound variable": f"INSERT {{ GRAPH <{THEIRS}> {{ <urn:x> <urn:p> ?v }} }} WHERE {{}}",
    "MOVE of one that may only be seen and is not there": f"DROP SILENT GRAPH <{MINE}> ; "
    f"MOVE SILENT <{OTHER}> TO <{MINE}>",
    "COPY of none to hidden": f"COPY <{OTHER}> TO <{THEIRS}>",
    "CREATE SILENT": f"CREATE SILENT GRAPH <{THEIRS}>",
    "long data": f"INSERT DATA {{ GRAPH <{OTHER}> {{ {' . '.join(f'<urn:x> <urn:p> {n}' for n in range(2000))} }} }}",
    "a blank node's graph": "INSERT { GRAPH ?g { <urn:x> <urn:p> 1 } } WHERE { BIND(IRI('') AS ?g) }",
}


@pytest.mark.parametrize("empty", [False, True])
# that depends on the graphs that the client may see
@pytest.mark.parametrize("write", sorted(WRITES.keys() - {"GRAPH variable"}))
def test_the_refusal_does_not_reveal_whether_a_graph_exists(plain, write, empty):
    if empty:
        plain.update([UpdateRequest("DROP ALL")]).result()
    plain.update([UpdateRequest(f"CREATE SILENT GRAPH <{MINE}> ; CREATE SILENT GRAPH <{OTHER}>")]).result()
    with pytest.raises(Forbidden):
        plain.update([UpdateRequest(WRITES[write], access=LIMITED)]).result()


@pytest.mark.parametrize("write", WRITES)
def test_no_update_changes_a_forbidden_graph(engine, write):
    before = everything(engine)
    with pytest.raises(Forbidden):
        engine.update([UpdateRequest(WRITES[write], access=LIMITED)]).result()
    assert everything(engine) == before


STOLEN = {
    "WHERE": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ ?s ?p ?o }}",
    "GRAPH": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ GRAPH ?g {{ ?s ?p ?o }} }}",
    "GRAPH constant": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} "
    f"WHERE {{ GRAPH <{THEIRS}> {{ ?s ?p ?o }} }}",
    "USING": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} USING <{THEIRS}> WHERE {{ ?s ?p ?o }}",
    "USING NAMED": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} USING NAMED <{THEIRS}> "
    "WHERE { GRAPH ?g { ?s ?p ?o } }",
    "WITH": f"WITH <{THEIRS}> INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ ?s ?p ?o }}",
    "EXISTS": f"WITH <{MINE}> INSERT {{ <urn:x> <urn:p> '{SECRET}' }} WHERE {{ FILTER EXISTS {{ GRAPH <{THEIRS}> "
    "{ ?s ?p ?o } } }",
    "path": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ GRAPH ?g {{ ?s <urn:next>* ?o }} }}",
    "sub-select": f"INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ {{ SELECT ?o {{ ?s ?p ?o }} }} }}",
}


@pytest.mark.parametrize("theft", STOLEN)
def test_no_update_copies_a_forbidden_graph(engine, theft):
    update = STOLEN[theft]
    for dataset in (Dataset(), Dataset((THEIRS,)), Dataset(None, (THEIRS,))):
        try:
            engine.update([UpdateRequest(update, dataset, access=LIMITED)]).result()
        except EdgeError:
            continue
        assert SECRET not in asked(engine, f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p ?o }} }}"), dataset
    engine.update([UpdateRequest(update, access=Access("all"))]).result()
    found = asked(engine, f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p ?o }} }}")
    assert SECRET in found


def test_a_plan_that_was_made_for_one_client_does_not_serve_another(plain):
    """Texts with the same fingerprint share plans, whatever their constants, including that of WITH."""
    text = "WITH <{}> INSERT {{ GRAPH <urn:g:mine> {{ <urn:x> <urn:p> ?o }} }} WHERE {{ ?s <urn:p> ?o }}"
    for graph, access in itertools.product((MINE, OTHER, THEIRS), (Access("all"), LIMITED)):
        plain.update([UpdateRequest(text.format(graph), access=access)]).result()
        plain.update([UpdateRequest(f"DELETE WHERE {{ GRAPH <{MINE}> {{ <urn:x> ?p ?o }} }}")]).result()
    for graph in (MINE, OTHER, THEIRS):
        plain.update([UpdateRequest(text.format(graph), access=LIMITED)]).result()
    assert SECRET not in asked(plain, f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p ?o }} }}")


EMPTY = [
    f"INSERT DATA {{ GRAPH <{THEIRS}> {{ }} }}",
    f"INSERT DATA {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> 1 }} GRAPH <{THEIRS}> {{ # nothing\n }} }}",
    f"PREFIX t: <{THEIRS}> DELETE DATA {{ GRAPH t: {{}} }}",
    f"DELETE WHERE {{ GRAPH <{THEIRS}> {{}} }}",
    f"INSERT {{ GRAPH <{THEIRS}> {{}} }} WHERE {{}}",
    f"DELETE {{ GRAPH <{THEIRS}> {{}} }} INSERT {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> 1 }} }} WHERE {{}}",
    f"INSERT {{ GRAPH <{THEIRS}> {{}} }} WHERE {{ ?s <urn:p>* ?o }}",
]


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
@pytest.mark.parametrize("sparql", EMPTY)
def test_a_graph_that_is_named_without_triples_counts_as_named(plain, sparql, long):
    if long:  # parsed in another way
        data = "".join(f"<urn:x> <urn:p> {number} . " for number in range(2000))
        sparql = f"INSERT DATA {{ GRAPH <{MINE}> {{ {data} }} }} ; {sparql}"
    before = everything(plain)
    with pytest.raises(Forbidden, match=THEIRS):
        plain.update([UpdateRequest(sparql, access=LIMITED)]).result()
    plain.update([UpdateRequest(sparql.replace(THEIRS, "urn:g:none"))]).result()
    plain.update([UpdateRequest(sparql.replace(THEIRS, MINE), access=LIMITED)]).result()
    assert everything(plain) >= before


def test_permitted_graphs_can_be_changed(engine):
    for update in (
        f"INSERT DATA {{ GRAPH <{MINE}> {{ <urn:x> <urn:p> 1 }} }}",
        f"WITH <{MINE}> DELETE {{ ?s ?p 1 }} INSERT {{ ?s ?p 2 }} WHERE {{ ?s ?p 1 }}",
        f"INSERT {{ GRAPH <{MINE}> {{ <urn:y> <urn:p> ?o }} }} WHERE {{ GRAPH <{OTHER}> {{ ?s <urn:p> ?o }} }}",
        f"COPY <{OTHER}> TO <{MINE}>",
        f"CLEAR GRAPH <{MINE}>",
        f"DROP GRAPH <{MINE}>",
        f"CREATE GRAPH <{MINE}>",
    ):
        engine.update([UpdateRequest(update, access=LIMITED)]).result()
    assert "other" not in asked(engine, f"SELECT * {{ GRAPH <{MINE}> {{ ?s ?p ?o }} }}")


def test_load_and_service_are_off(plain):
    for access in (LIMITED, Access("all")):
        with pytest.raises(Forbidden):
            plain.update([UpdateRequest("LOAD <http://127.0.0.1:9/>", access=access)]).result()
        with pytest.raises(Forbidden):
            asked(plain, "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }", access=access)


GRAPHS = ["", "urn:g:a", "urn:g:b", "urn:g:c"]


@bounded(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    quads=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(GRAPHS)), max_size=12),
    read=st.frozensets(st.sampled_from(GRAPHS)),
    union=st.booleans(),
    query=st.sampled_from(
        [
            "SELECT ?s ?o { ?s <urn:p> ?o }",
            "SELECT ?g ?s ?o { GRAPH ?g { ?s <urn:p> ?o } }",
            "SELECT ?s ?o FROM <urn:g:a> FROM <urn:g:b> { ?s <urn:p> ?o }",
            "SELECT ?s ?o FROM NAMED <urn:g:b> { GRAPH ?g { ?s <urn:p> ?o } }",
            "SELECT ?s ?o { { ?s <urn:p> ?o } UNION { GRAPH <urn:g:c> { ?s <urn:p> ?o } } }",
            "SELECT ?s ?o { ?s <urn:p> ?o FILTER NOT EXISTS { GRAPH ?g { ?s <urn:p> ?o } } }",
            "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s <urn:p> ?o } }",
            "SELECT ?o { <urn:s0> <urn:p>* ?o }",
        ]
    ),
)
def test_a_limited_client_gets_the_result_of_its_graphs_alone(quads, read, union, query):
    engine = open_engine(None, EngineSettings(default_graph_as_union=union))
    try:
        own = ox.Store()
        notes: list[Any] = []
        access = Access("c", read=read)
        engine.subscribe(QueryRequest(query, Dataset(), access), notes.append).result()
        for number, graph in quads:
            triple = f"<urn:s{number}> <urn:p> <urn:s{(number + 1) % 4}>"
            text = f"INSERT DATA {{ GRAPH <{graph}> {{ {triple} }} }}" if graph else f"INSERT DATA {{ {triple} }}"
            engine.update([UpdateRequest(text)]).result()
            if graph in read:
                own.update(text)
        expected = sorted(map(str, own.query(query, use_default_graph_as_union=union and "FROM" not in query)))
        found = engine.query(QueryRequest(query, Dataset(), access)).result()
        settle(engine)
        received: list[Any] = []
        for note in notes:
            for row in note.delta.removed:
                received.remove(row)
            received += note.delta.added
        assert sorted(" ".join(map(str, row)) for row in found.rows) == sorted(
            " ".join(map(str, row)) for row in received
        )
        assert len(found.rows) == len(expected)
    finally:
        engine.close()
