"""Subscriptions: notifications, their content and their order."""

from __future__ import annotations

import gc
import json
from collections import Counter

import pytest
from engine_client import EX, PREFIX, Client, plain, update
from engine_world import NOW, World, new_engine, run
from oracle import Query

from edge.engine.engine import Engine
from edge.engine.requests import UpdateRequest
from tests.support.settings import query_rules

# Notifications


def test_equal_subscriptions_share_one_spu_and_count_for_themselves():
    engine = new_engine()
    first = Client(engine, "SELECT ?s { ?s ex:p ?o }", alias="first")
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    second = Client(engine, "SELECT ?s { ?s ex:p ?o }", alias="second")
    assert (engine.spus.subscriptions, engine.spus.spus) == (2, 1)
    update(engine, "INSERT DATA { ex:b ex:p 1 }")
    assert [(n.spuid, n.alias, n.sequence) for n in first.items] == [(first.spuid, "first", n) for n in range(3)]
    assert [(n.spuid, n.alias, n.sequence) for n in second.items] == [(second.spuid, "second", n) for n in range(2)]
    assert first.last.delta is second.last.delta, "serialised once"
    engine.unsubscribe(first.spuid)
    update(engine, "INSERT DATA { ex:c ex:p 1 }")
    assert (len(first.items), len(second.items)) == (3, 3)
    engine.unsubscribe(second.spuid)
    assert (engine.spus.subscriptions, engine.spus.spus) == (0, 0)
    update(engine, "INSERT DATA { ex:d ex:p 1 }")
    assert (len(first.items), len(second.items)) == (3, 3)


def test_unaffected_subscribers_are_not_notified():
    engine = new_engine()
    texts = [
        "SELECT ?o { ex:a ex:p ?o }",
        "SELECT ?o { ex:a ex:p ?o FILTER(?o > 0) }",
        "SELECT ?s { GRAPH ex:g { ?s ex:p ?o } }",
        "ASK { ex:a ex:q ?o }",
        "CONSTRUCT { ?s ex:r ?o } WHERE { ?s ex:q ?o }",
        "DESCRIBE ex:a",
    ]
    clients = [Client(engine, text) for text in texts]
    for client in clients:
        client.items.clear()
    for text in ("ex:b ex:p 1", "ex:a ex:r 1 . ex:a ex:r 2", "GRAPH ex:h { ex:a ex:p 1 }"):
        update(engine, f"INSERT DATA {{ {text} }}")
    assert [client.news() for client in clients[:5]] == [None] * 5


def test_every_update_of_a_batch_is_one_notification_in_order():
    engine = new_engine()
    client = Client(engine, "SELECT ?o { ex:a ex:p ?o }")
    texts = ["INSERT DATA { ex:a ex:p 1 }", "DELETE DATA { ex:a ex:p 1 } ; INSERT DATA { ex:a ex:p 2 }", "CLEAR ALL"]
    executed = engine.execute([engine.prepare(UpdateRequest(PREFIX + text)) for text in texts], NOW)
    assert len(client.items) == 1, "no client is notified before it is published"
    engine.show(executed)
    assert engine.publish(executed) == 3
    rows = [([plain(r) for r in n.delta.added], [plain(r) for r in n.delta.removed]) for n in client.items]
    assert rows == [([], []), ([("1",)], []), ([("2",)], [("1",)]), ([], [("2",)])]
    assert [n.sequence for n in client.items] == [0, 1, 2, 3]


def test_an_undone_batch_was_never_there():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 1 ; a ex:T }")
    texts = [
        "SELECT ?o { ?s ex:p ?o }",
        "SELECT DISTINCT ?s { ?s ex:p ?o }",
        "SELECT (COUNT(*) AS ?n) { ?s ex:p ?o }",
        "ASK { ex:b ex:p ?o }",
        "CONSTRUCT { ?s ex:r [] } WHERE { ?s ex:p ?o }",
        "DESCRIBE ?x WHERE { ?x a ex:T }",
    ]
    clients = [Client(engine, text) for text in texts]
    for client in clients:
        client.items.clear()
    batch = ["INSERT DATA { ex:b ex:p 2 ; a ex:T }", "DELETE WHERE { ex:a ?p ?o }", "CLEAR ALL"]
    engine.undo(engine.execute([engine.prepare(UpdateRequest(PREFIX + text)) for text in batch], NOW))
    assert [client.news() for client in clients] == [None] * 6
    update(engine, "INSERT DATA { ex:a ex:p 3 }")
    news = [client.news() for client in clients]
    assert news[0] == ([("3",)], [])
    assert news[1] is None
    assert news[2] == ([("2",)], [("1",)])
    assert news[3] is None
    assert news[5] == ([("a", "p", "3")], [])


def test_an_interrupt_while_subscriptions_move_undoes_the_update():
    """Whatever exception interrupts the update, the graph, the results and the mirrors are as before."""
    engine = new_engine()
    clients = [
        Client(engine, f"SELECT ?o {{ {where} }}")
        for where in ("?s ex:p ?o", "{ ?s ex:p ?o }", "?s ex:p ?o . ?s ex:p ?x")
    ]
    spus = list(engine.spus.registry.by_spuid.values())
    spu = spus[0]

    class Fault(BaseException):
        pass

    move = type(spu).move

    def failing(self: object, *args: object) -> object:
        moved = move(self, *args)
        if self is spus[-1]:
            raise Fault
        return moved

    type(spu).move = failing
    try:
        with pytest.raises(Fault):
            update(engine, "INSERT DATA { ex:a ex:p 1 }")
    finally:
        type(spu).move = move
    assert len(engine.graph) == 0
    for client in clients[:2]:
        client.items.clear()
    update(engine, "INSERT DATA { ex:b ex:p 2 }")
    assert [client.news() for client in clients[:2]] == [([("2",)], [])] * 2


# Query forms


def test_select_star_lists_variables_in_order_of_first_appearance():
    engine = new_engine()
    for text, names in (
        ("SELECT * { ?z ex:p ?a . ?m ex:q ?z }", ("z", "a", "m")),
        ("SELECT * { ?z ex:p ?a FILTER(?a > 0) BIND(1 AS ?b) }", ("z", "a", "b")),
        ("SELECT DISTINCT * { { SELECT ?y { ?x ex:p ?y } } ?z ?y ?b }", ("y", "z", "b")),
        ("SELECT * { ?z ex:p ?a MINUS { ?hidden ex:p ?z } }", ("z", "a")),
        ("SELECT * { }", ()),
        ("SELECT ?b ?a { ?a ex:p ?b }", ("b", "a")),
        ("SELECT ?nothing ?a { ?a ex:p ?b }", ("nothing", "a")),
    ):
        assert Client(engine, text).last.delta.variables == names


def test_first_notification_has_everything_and_its_json():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    notification = Client(engine, "SELECT ?s ?o { ?s ex:p ?o }").last
    one = {"type": "literal", "value": "1", "datatype": "http://www.w3.org/2001/XMLSchema#integer"}
    assert json.loads(notification.delta.json[0]) == {
        "head": {"vars": ["s", "o"]},
        "results": {"bindings": [{"s": {"type": "uri", "value": EX + "a"}, "o": one}]},
    }
    assert json.loads(notification.delta.json[1]) == {"head": {"vars": ["s", "o"]}, "results": {"bindings": []}}


def test_construct_keeps_the_blank_nodes_of_its_template():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 2 }")
    client = Client(engine, "CONSTRUCT { ?s ex:has _:x . _:x ex:value ?o } WHERE { ?s ex:p ?o }")
    first = Counter(client.last.delta.added)
    assert sum(first.values()) == 4
    assert client.last.delta.variables == ("subject", "predicate", "object")
    client.items.clear()
    update(engine, "INSERT DATA { ex:c ex:p 3 }")
    assert len(client.last.delta.added) == 2
    assert client.last.delta.removed == ()
    client.items.clear()
    update(engine, "DELETE DATA { ex:a ex:p 1 }")
    assert len(client.last.delta.removed) == 2
    assert set(client.last.delta.removed) <= set(first)


def test_construct_counts_no_triple_twice():
    engine = new_engine()
    client = Client(engine, "CONSTRUCT { ex:x ex:has ?o } WHERE { ?s ex:p ?o }")
    client.news()
    update(engine, "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 1 }")
    assert client.news() == ([("x", "has", "1")], [])
    update(engine, "DELETE DATA { ex:a ex:p 1 }")
    assert client.news() is None


def test_describe_follows_the_described_resources():
    engine = new_engine()
    client = Client(engine, "DESCRIBE ?x { ?x a ex:T }")
    client.news()
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    assert client.news() is None
    update(engine, "INSERT DATA { ex:a a ex:T }")
    assert len(client.news()[0]) == 2
    update(engine, "INSERT DATA { ex:a ex:q [ ex:r 1 ] }")
    assert len(client.news()[0]) == 2, "with the blank node that hangs on it"
    update(engine, "INSERT { ?b ex:r 2 } WHERE { ex:a ex:q ?b }")
    assert len(client.news()[0]) == 1
    update(engine, "DELETE DATA { ex:a a ex:T }")
    assert len(client.news()[1]) == 5
    update(engine, "INSERT DATA { ex:a ex:p 2 }")
    assert client.news() is None


def test_describe_watches_new_resources_with_an_unchanged_result():
    engine = new_engine()
    client = Client(engine, "DESCRIBE ?x { GRAPH ex:g { ?x a ex:T } }")
    client.news()
    update(engine, "INSERT DATA { GRAPH ex:g { ex:a a ex:T } }")
    assert client.news() is None
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    assert client.news() == ([("a", "p", "1")], [])


def test_describe_watches_blank_nodes_without_triples():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:q [] }")
    client = Client(engine, "DESCRIBE ex:a")
    client.news()
    update(engine, "INSERT { ?b ex:r 1 } WHERE { ex:a ex:q ?b }")
    assert len(client.news()[0]) == 1


def test_describe_watches_the_same_resources_after_an_undo():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a a ex:T }")
    client = Client(engine, "DESCRIBE ?x { ?x a ex:T }")
    client.news()
    engine.undo(engine.execute([engine.prepare(UpdateRequest(PREFIX + "DELETE DATA { ex:a a ex:T }"))], NOW))
    update(engine, "INSERT DATA { ex:a ex:p 1 }")
    assert client.news() == ([("a", "p", "1")], [])


MOVES = {
    "SELECT ?g { GRAPH ?g { } }": (
        "CREATE GRAPH ex:g",
        "INSERT DATA { GRAPH ex:h { ex:a ex:p 1 } }",
        "DROP ALL",
    ),
    "SELECT ?g { GRAPH ?g { } } ": (
        "INSERT DATA { GRAPH ex:h { ex:a ex:p 1 } }",
        "CLEAR GRAPH ex:h",
        "DROP NAMED",
    ),
    "ASK { GRAPH ex:g { } }": (
        "CREATE GRAPH ex:g",
        "DROP GRAPH ex:g",
    ),
    "SELECT * { ex:a ex:p* ?o }": (
        "INSERT DATA { ex:a ex:q 1 }",
        "INSERT DATA { ex:b ex:q ex:a }",
        "CLEAR ALL",
    ),
    "ASK { ex:a ex:p? ex:a }": (
        "INSERT DATA { ex:b ex:q ex:a }",
        "CLEAR ALL",
    ),
    "SELECT * { ?s ex:p* ?o }": (
        "INSERT DATA { ex:a ex:q 1 }",
        "INSERT DATA { ex:a ex:p ex:b }",
        "CLEAR ALL",
    ),
    "SELECT * { ?s (ex:p/ex:q)+ ?o }": (
        "INSERT DATA { ex:a ex:p ex:b . ex:b ex:q ex:a }",
        "DELETE DATA { ex:b ex:q ex:a }",
    ),
    "SELECT ?o { [] (ex:p/ex:q)|ex:r ?o }": (
        "INSERT DATA { ex:a ex:p ex:b . ex:b ex:q 1 }",
        "INSERT DATA { ex:c ex:r 1 }",
        "DELETE DATA { ex:b ex:q 1 }",
    ),
    "SELECT (COUNT(*) AS ?n) { ?s ex:p ?o }": (
        "INSERT DATA { ex:a ex:p 1 , 2 }",
        "DELETE DATA { ex:a ex:p 1 }",
    ),
    "SELECT ?s (SUM(?o) AS ?n) { ?s ex:p ?o } GROUP BY ?s": (
        "INSERT DATA { ex:a ex:p 1 , 2 . ex:b ex:p 'x' }",
        "CLEAR ALL",
    ),
    "SELECT ?s { ?s ex:p ?o } ORDER BY ?s LIMIT 1": (
        "INSERT DATA { ex:b ex:p 1 }",
        "INSERT DATA { ex:a ex:p 1 }",
    ),
    "SELECT ?s { ?s ex:p ?o FILTER NOT EXISTS { ?s ex:q ?x } }": (
        "INSERT DATA { ex:a ex:p 1 }",
        "INSERT DATA { ex:a ex:q 1 }",
    ),
    "SELECT ?s (EXISTS { ?s ex:q ?x } AS ?e) FROM ex:g { ?s ex:p ?o }": (
        "INSERT DATA { GRAPH ex:g { ex:a ex:p 1 } }",
        "INSERT DATA { GRAPH ex:g { ex:a ex:q 1 } }",
    ),
    "SELECT ?s ?x { ?s ex:p ?o MINUS { ?x ex:q ?s } }": (
        "INSERT DATA { ex:a ex:p 1 }",
        "INSERT DATA { ex:b ex:q ex:a }",
    ),
    "SELECT ?s FROM NAMED ex:g { ?s ex:p ?o }": ("INSERT DATA { ex:a ex:p 1 . GRAPH ex:g { ex:a ex:p 1 } }",),
    "SELECT DISTINCT ?o { ?s ex:p ?o }": (
        "INSERT DATA { ex:a ex:p 1 . ex:b ex:p 1 }",
        "DELETE DATA { ex:a ex:p 1 }",
        "CLEAR ALL",
    ),
    "SELECT ?v { ?s ex:p ?v FILTER(?v<7&&?v>2) }": (
        "INSERT DATA { ex:a ex:p 1 , 5 , 9 }",
        "DELETE DATA { ex:a ex:p 5 }",
    ),
    "SELECT ?a ?b { ?a ex:p ?x OPTIONAL { ?x ex:q ?b } OPTIONAL { ?a ex:q ?b } }": (
        "INSERT DATA { ex:a ex:p ex:x ; ex:q 1 }",
        "INSERT DATA { ex:x ex:q 1 , 2 }",
        "DELETE DATA { ex:x ex:q 1 }",
    ),
    "CONSTRUCT WHERE { ?s ex:p ?o . ?o ex:q ?x }": (
        "INSERT DATA { ex:a ex:p ex:b . ex:b ex:q 1 , 2 }",
        "DELETE DATA { ex:b ex:q 1 }",
    ),
    "SELECT ?s { ?s ex:p '01'^^xsd:integer , 'x'@EN }": (
        "INSERT DATA { ex:a ex:p 1 , 'x'@en }",
        "DELETE DATA { ex:a ex:p '1'^^xsd:int }",
    ),
    "SELECT * { <rel> <#p> ?o }": (
        "INSERT DATA { <rel> <#p> 1 }",
        "INSERT DATA { <http://localhost/rel> <http://localhost/#p> 2 }",
    ),
}


@pytest.mark.parametrize("text", MOVES)
def test_results_equal_those_of_the_naive_engine(text):
    world = World()
    world.subscribe(Query(PREFIX + text))
    for each in MOVES[text]:
        world.update(each, PREFIX)
    world.check_no_leak()


def test_now_in_a_subscription_is_the_time_of_the_update():
    engine = new_engine()
    client = Client(engine, "SELECT ?s (NOW() AS ?t) { ?s ex:p ?o }")
    client.items.clear()
    run(engine, PREFIX + "INSERT DATA { ex:a ex:p 1 }", now=1_000_000)
    assert client.news() == ([("a", "1970-01-01T00:00:01Z")], [])


def test_union_default_graph_is_watched():
    engine = Engine(query_rules(default_graph_as_union=True), lambda document: [])
    clients = [Client(engine, text) for text in ("SELECT ?o { ?s ex:p ?o }", "SELECT ?o { ?s ex:p ?o FILTER(true) }")]
    for client in clients:
        client.items.clear()
    update(engine, "INSERT DATA { GRAPH ex:g { ex:a ex:p 1 } }")
    assert [client.news() for client in clients] == [([("1",)], [])] * 2


def test_from_restricts_the_dataset_of_a_union_default_graph():
    engine = Engine(query_rules(default_graph_as_union=True), lambda document: [])
    update(engine, "INSERT DATA { ex:a ex:p 0 GRAPH ex:g { ex:a ex:p 1 } GRAPH ex:h { ex:a ex:p 2 } }")
    rows = {text: Client(engine, f"SELECT ?o {text} {{ ?s ex:p ?o }}").last.delta.added for text in ("", "FROM ex:g")}
    assert [len(rows[""]), len(rows["FROM ex:g"])] == [3, 1]


# The end of a subscription


def test_a_subscription_leaves_no_reference_cycles_behind():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:p 1 ; ex:q 2 }")

    def begin_and_end() -> None:
        client = Client(engine, "SELECT ?s (SUM(?y) AS ?sum) { ?s ex:p ?o . ?s ex:q ?y FILTER(?o > 0) } GROUP BY ?s")
        engine.unsubscribe(client.spuid)

    begin_and_end()  # its plan stays in the cache
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        begin_and_end()
        gc.collect()
        # Other threads of the process may leave garbage of their own.
        assert [each for each in gc.garbage if _module(each).startswith("edge.engine.")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _module(each: object) -> str:
    """Return the module of a function or of the class of an object."""
    return str(getattr(each, "__module__", None) or type(each).__module__)
