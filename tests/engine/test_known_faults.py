"""One test for each known fault of the reference engine that this engine does not have."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pyoxigraph as ox
import pytest
from engine_client import EX, Client, update
from engine_world import current, new_engine, run
from oracle import Query

from edge.engine.engine import Engine
from edge.engine.requests import Dataset, SubscribeFailed
from edge.protocol.errors import EdgeError, Forbidden, NotFound, ParsingFailed
from tests.support.settings import query_rules


def test_updates_of_the_default_graph_notify():
    engine = new_engine()
    for text in ("SELECT ?s { ?s ex:p ?o }", "SELECT ?s { ?s ex:p ?o FILTER(true) }"):
        client = Client(engine, text)
        assert client.news() == ([], [])
        update(engine, "INSERT DATA { ex:a ex:p 1 }")
        assert client.news() == ([("a",)], [])
        update(engine, "DELETE WHERE { ?s ex:p ?o }")
        assert client.news() == ([], [("a",)])


def test_an_extended_optional_row_is_notified_as_replaced():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 2 }")
    for text in (
        "SELECT ?s ?x { ?s ex:p ?o OPTIONAL { ?s ex:q ?x } }",
        "SELECT ?s ?x { { ?s ex:p ?o } OPTIONAL { ?s ex:q ?x } }",
    ):
        client = Client(engine, text)
        assert client.news() == ([("a", None), ("b", None)], [])
        update(engine, "INSERT DATA { ex:a ex:q 'x' }")
        assert client.news() == ([("a", "x")], [("a", None)])
        update(engine, "INSERT DATA { ex:a ex:q 'y' }")
        assert client.news() == ([("a", "y")], [])
        update(engine, "INSERT DATA { ex:c ex:q 'z' }")
        assert client.news() is None
        update(engine, "DELETE WHERE { ?s ex:q ?x }")
        assert client.news() == ([("a", None)], [("a", "x"), ("a", "y")])


def test_ask_notifies_when_its_answer_changes_and_only_then():
    engine = new_engine()
    client = Client(engine, "ASK { ?s ex:p ?o }")
    assert client.last.delta.variables == ("boolean",)
    assert client.news() == ([("false",)], [])
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    assert client.news() == ([("true",)], [("false",)])
    update(engine, "INSERT DATA { ex:b ex:p 1 }")
    assert client.news() is None
    update(engine, "DELETE WHERE { ?s ex:p ?o }")
    assert client.news() == ([("false",)], [("true",)])


@pytest.mark.parametrize("where", ["?s ex:p ?o", "{ ?s ex:p ?o }"])
def test_added_and_removed_are_both_bags(where):
    engine = new_engine()
    client = Client(engine, f"SELECT ?o {{ {where} }}")
    client.news()
    update(engine, "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 1 . ex:c ex:p 1 }")
    assert client.news() == ([("1",)] * 3, [])
    update(engine, "DELETE DATA { ex:a ex:p 1 . ex:b ex:p 1 }")
    assert client.news() == ([], [("1",)] * 2)
    update(engine, "DELETE DATA { ex:c ex:p 1 } ; INSERT DATA { ex:d ex:p 1 }")
    assert client.news() is None, "the bag is the same"


@pytest.mark.parametrize("where", ["?s ex:p ?o", "{ ?s ex:p ?o }"])
def test_literals_with_different_language_tags_differ(where):
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 'x'@en }")
    client = Client(engine, f"SELECT ?o {{ {where} }}")
    client.items.clear()
    update(engine, "DELETE DATA { ex:a ex:p 'x'@en } ; INSERT DATA { ex:a ex:p 'x'@de }")
    assert client.last.delta.added == ((ox.Literal("x", language="de"),),)
    assert client.last.delta.removed == ((ox.Literal("x", language="en"),),)
    client.items.clear()
    update(engine, "DELETE DATA { ex:a ex:p 'x'@DE } ; INSERT DATA { ex:a ex:p 'x'@dE }")
    assert client.news() is None, "upper or lower case makes no other tag"


@pytest.mark.parametrize("where", ["?s ex:p ?o", "{ ?s ex:p ?o }"])
def test_different_blank_nodes_stay_different(where):
    engine = new_engine()
    update(engine, "INSERT DATA { _:x ex:p 1 ; ex:is 'x' . _:y ex:p 1 ; ex:is 'y' }")
    client = Client(engine, f"SELECT ?s {{ {where} }}")
    first = set(client.last.delta.added)
    assert len(first) == 2
    client.items.clear()
    update(engine, "DELETE { ?s ex:p 1 } WHERE { ?s ex:is 'x' }")
    (gone,) = client.last.delta.removed
    assert gone in first
    client.items.clear()
    update(engine, "INSERT DATA { [] ex:p 1 }")
    assert client.last.delta.removed == ()
    assert client.last.delta.added[0] not in first


def test_same_text_with_different_datasets_is_two_spus():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 0 . GRAPH ex:g { ex:a ex:p 1 } GRAPH ex:h { ex:a ex:p 2 } }")
    text = "SELECT ?o { ?s ex:p ?o }"
    datasets = [
        None,
        Dataset((EX + "g",), ()),
        Dataset((EX + "h",), ()),
        Dataset((EX + "g", EX + "h"), ()),
        Dataset((), (EX + "g",)),
    ]
    clients = [Client(engine, text, dataset) for dataset in datasets]
    assert engine.spus.spus == 5
    assert [client.news()[0] for client in clients] == [[("0",)], [("1",)], [("2",)], [("1",), ("2",)], []]
    update(engine, "INSERT DATA { GRAPH ex:g { ex:a ex:p 3 } }")
    assert [client.news() for client in clients] == [None, ([("3",)], []), None, ([("3",)], []), None]


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rows = [{"s": {"type": "uri", "value": EX + name}, "x": {"type": "literal", "value": "far"}} for name in "ab"]
        body = json.dumps({"head": {"vars": ["s", "x"]}, "results": {"bindings": rows}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/sparql-results+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.integration
def test_a_failing_query_notifies_its_subscribers_and_ends(elsewhere):
    engine = Engine(query_rules(allow_service=True), lambda document: [])
    service = f"SERVICE <http://127.0.0.1:{elsewhere.server_port}/> {{ ?s ex:far ?x }}"
    failing = [Client(engine, f"SELECT ?o ?x {{ ?s ex:p ?o {service} }}", alias=alias) for alias in ("one", "two")]
    other = Client(engine, "SELECT ?o { ?s ex:p ?o }")
    for client in (*failing, other):
        client.items.clear()
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    assert [client.news() for client in failing] == [([("1", "far")], [])] * 2
    assert other.news() == ([("1",)], [])
    elsewhere.shutdown()
    elsewhere.socket.close()
    update(engine, "INSERT DATA { ex:b ex:p 2 }")
    assert other.news() == ([("2",)], [])
    for client, alias in zip(failing, ("one", "two"), strict=True):
        (item,) = client.items
        assert isinstance(item, SubscribeFailed)
        assert (item.spuid, item.alias) == (client.spuid, alias)
        assert "could not be evaluated" in item.description
        with pytest.raises(NotFound):
            engine.unsubscribe(client.spuid)
    assert (engine.spus.subscriptions, engine.spus.spus) == (1, 1)
    engine.unsubscribe(other.spuid)
    update(engine, "DROP ALL")
    assert len(engine.graph.dictionary) == 1
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    with pytest.raises(EdgeError, match="could not be evaluated"):
        Client(engine, f"SELECT ?o ?x {{ ?s ex:p ?o {service} }}")


def test_errors_name_the_problem():
    engine = new_engine()
    for text, error, words in (
        ("SELECT ?s { ?s ?p", ParsingFailed, "is not closed"),
        ("INSERT DATA { ex:a ex:p 1 }", ParsingFailed, "This is an update, not a query"),
        ("SELECT ?s { SERVICE ex:x { ?s ?p ?o } }", Forbidden, "engine.allow_service"),
    ):
        with pytest.raises(error, match=words):
            Client(engine, text)
    with pytest.raises(ParsingFailed, match="absolute IRI"):
        Client(engine, "ASK { }", Dataset(("not an iri",), ()))
    with pytest.raises(NotFound, match="does not exist"):
        engine.unsubscribe("sepa://subscription/none")
    assert engine.spus.spus == 0
    assert len(engine.graph.dictionary) == 1


def test_a_query_is_distinguished_from_an_update():
    engine = new_engine()
    with pytest.raises(EdgeError, match="is an update, not a query"):
        current(engine, Query("PREFIX ex: <http://example.org/> INSERT DATA { ex:a ex:p 1 }"))
    with pytest.raises(EdgeError, match="is a query, not an update"):
        run(engine, "select * { ?s ?p ?o }")
