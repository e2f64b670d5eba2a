"""The cache of join results for subscriptions: it changes nothing but the time, is bounded, and is released."""

from __future__ import annotations

import pytest
from engine_client import Client, update
from engine_world import new_engine, run

from edge.engine.requests import UpdateRequest
from tests.support.settings import query_rules

QUERY = "SELECT ?v { ?room ex:has ?sensor . ?sensor ex:value ?v . ?room ex:name %s }"


@pytest.mark.parametrize("most", [0, 300, 1500, 50_000])
def test_cached_join_results_do_not_change_notifications(most):
    engine = new_engine(query_rules(max_remembered_bytes=most))
    memory = engine.spus.registry.memory
    rooms = " ".join(f"ex:r{n % 3} ex:has ex:s{n} ; ex:name {n % 3} ." for n in range(9))
    update(engine, f"INSERT DATA {{ {rooms} }}")
    clients = [Client(engine, QUERY % name) for name in range(3)]
    for client in clients:
        client.items.clear()
    for turn in range(3):
        for sensor in range(9):
            value = f"ex:s{sensor} ex:value"
            update(engine, f"DELETE WHERE {{ {value} ?o }} ; INSERT DATA {{ {value} {turn} }}")
            gone = [] if turn == 0 else [(str(turn - 1),)]
            assert [client.news() for client in clients] == [
                ([(str(turn),)], gone) if client is clients[sensor % 3] else None for client in clients
            ]
            assert memory.held <= most
    assert (memory.held > 0) == (most > 300)
    update(engine, "DELETE { ex:r0 ex:has ex:s0 } INSERT { ex:r1 ex:has ex:s0 } WHERE { }")
    assert [client.news() for client in clients] == [([], [("2",)]), ([("2",)], []), None]
    update(engine, "DELETE WHERE { ex:s0 ex:value ?o }")
    assert [client.news() for client in clients] == [None, ([], [("2",)]), None]
    for spuid in list(engine.spus.registry.by_spuid):
        engine.unsubscribe(spuid)
    assert memory.held == 0
    run(engine, "DROP ALL")
    assert len(engine.graph.dictionary) == 1


def test_undone_changes_are_not_cached():
    engine = new_engine()
    client = Client(engine, QUERY % 1)
    other = Client(engine, QUERY % 2)
    client.items.clear()
    other.items.clear()
    update(engine, "INSERT DATA { ex:r ex:has ex:s ; ex:name 1 }")
    prefix = "PREFIX ex: <http://example.org/> "
    texts = ("DELETE DATA { ex:r ex:has ex:s }", "INSERT DATA { ex:s ex:value 1 }")
    engine.undo(engine.execute([engine.prepare(UpdateRequest(prefix + text)) for text in texts], 0))
    update(engine, "INSERT DATA { ex:s ex:value 2 }")
    assert client.news() == ([("2",)], [])
    assert other.news() is None


def test_the_cache_keeps_no_removed_long_terms():
    most = 100_000
    engine = new_engine(query_rules(max_remembered_bytes=most))
    Client(engine, QUERY % 1)
    for number in range(100):
        sensor = f"<urn:{number}:{'x' * 10_000}>"
        update(engine, f"INSERT DATA {{ {sensor} ex:value {number} }}")
        update(engine, f"DELETE WHERE {{ {sensor} ?p ?o }}")
        assert engine.spus.registry.memory.held <= most
        assert sum(engine.graph.dictionary.long.values()) <= most
    assert engine.spus.registry.memory.held > 0
