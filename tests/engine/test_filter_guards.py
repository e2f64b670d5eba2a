"""Filters on the changed quad alone: tested before the join, whose result is then cached for the group."""

from __future__ import annotations

import random

import pytest
from engine_client import Client, update
from engine_world import World, new_engine
from generated_patterns import PREFIX
from oracle import Query

READING = "?s ex:has ?q . ?q ex:value ?v"
SUBSCRIBED = (
    f"SELECT ?s ?v {{ {READING} FILTER(?v > 3) }}",
    f"SELECT ?s {{ {READING} FILTER(?v > 3) }}",
    f"SELECT ?s {{ {READING} FILTER(?v = 5) }}",
    f"SELECT ?s {{ {READING} FILTER(?v = ex:s1) }}",
    f"SELECT ?s ?v {{ {READING} FILTER(?q != ex:q1 && ?v != 4) }}",
    f"SELECT ?s ?v {{ {READING} FILTER(?v > 3) FILTER(?v < 7 || ?s = ex:s1) }}",
    f"SELECT ?s ?v {{ {READING} FILTER(?missing > 3) }}",
    f"SELECT ?s ?v {{ {READING} FILTER(?v > 3) FILTER EXISTS {{ ?q ex:limit ?v FILTER(?v > 3) }} }}",
    f"SELECT * {{ {READING} OPTIONAL {{ ?s ex:name ?n FILTER(?v > 3) }} }}",
    f"SELECT * {{ {READING} OPTIONAL {{ ?s ex:name ?n }} FILTER(?v > 3) }}",
    f"SELECT * {{ {READING} OPTIONAL {{ ?s ex:name ?n }} FILTER(?n > 3) }}",
    f"SELECT ?s ?v {{ {READING} FILTER(?v > 3) MINUS {{ ?q ex:limit ?v }} }}",
    f"SELECT ?s ?d {{ {READING} FILTER(?v > 3) BIND(?v * 2 AS ?d) }}",
    f"SELECT ?s (COUNT(?v) AS ?n) {{ {READING} FILTER(?v > 3) }} GROUP BY ?s",
    "SELECT ?q { ?q ex:value ?v FILTER(?v > 3) }",
    "SELECT ?q { ?q ex:value ?q FILTER(?q != ex:q1) }",
    "SELECT * { ?q ex:value ?v . ?q ex:value ?w FILTER(?v < ?w) FILTER(?v > 3) }",
    "SELECT * { ?q ex:value ?v . ?p ex:value ?v FILTER(?v > 3) }",
    "SELECT * { ?q ex:value ?v FILTER(?v > 3) ?p ex:limit ?w FILTER(?w > 3) }",
    "SELECT * { { ?q ex:value ?v FILTER(?v > 3) } { ?q ex:limit ?w FILTER(?w > ?v) } }",
    "SELECT * { { ?q ex:value ?v FILTER(?v > 3) } UNION { ?q ex:limit ?v FILTER(?v > 3) } }",
    "SELECT * { ?s ex:has ?q { ?q ex:value ?v FILTER(?v > 3) } UNION { ?q ex:limit ?v FILTER(?v < 3) } }",
    "SELECT ?s ?v { ?s ex:has ?q { SELECT ?q ?v { ?q ex:value ?v FILTER(?v > 3) } } }",
    "SELECT ?s { ?s ex:has ?q { SELECT ?q { ?q ex:value ?v FILTER(?v > 3) } } }",
    "SELECT * { { SELECT ?q { ?q ex:value ?v FILTER(?v > 3) } } ?q ex:limit ?v }",
    "SELECT * { { SELECT ?q { ?q ex:value ?v FILTER(?v > 3) } } ?q ex:limit ?v FILTER(?v > 3) }",
    "SELECT * { VALUES ?v { 4 5 UNDEF } ?q ex:value ?v FILTER(?v > 3) }",
    "SELECT * { GRAPH ?g { ?q ex:value ?v FILTER(?v > 3 && ?g != ex:q1) } }",
)
VALUES = ("1", "3", "4", "5", "5.0", "8", '"text"', "ex:s1", "ex:q1")


@pytest.mark.parametrize("text", SUBSCRIBED)
@pytest.mark.parametrize("seed", range(3))
def test_notifications_are_those_of_the_whole_query(text, seed):
    choice = random.Random(seed).choice
    world = World()
    for name in ("s1", "s2"):
        world.update([f"INSERT DATA {{ ex:{name} ex:has ex:q1, ex:q2 ; ex:name {name[1]}, 4 }}"], PREFIX)
    world.subscribe(Query(PREFIX + text))
    world.subscribe(Query(PREFIX + text.replace("3", "4")))
    for _ in range(15):
        quad = f"ex:{choice(('q1', 'q2'))} ex:{choice(('value', 'value', 'limit'))}"
        if "GRAPH" in text:
            world.update([f"INSERT DATA {{ GRAPH ex:{choice(('q1', 'q2'))} {{ {quad} {choice(VALUES)} }} }}"], PREFIX)
        elif choice((True, True, False)):
            operations = [f"DELETE WHERE {{ {quad} ?o }}", f"INSERT DATA {{ {quad} {choice(VALUES)} }}"]
            world.update(operations, PREFIX)
        else:
            world.update([f"INSERT DATA {{ {quad} {choice(VALUES)}, {choice(VALUES)} }}"], PREFIX)


def test_the_join_under_a_filter_is_cached_and_serves_every_later_value():
    engine = new_engine()
    memory = engine.spus.registry.memory
    update(engine, "INSERT DATA { ex:s ex:has ex:q }")
    clients = [Client(engine, f"SELECT ?s ?v {{ {READING} FILTER(?v > {least}) }}") for least in (3, 6)]
    for client in clients:
        client.items.clear()
    update(engine, "INSERT DATA { ex:q ex:value 2 }")
    assert memory.held == 0, "no filter accepts the value"
    seen = []
    for value in (4, 8, 5, 1):
        update(engine, f"DELETE WHERE {{ ex:q ex:value ?o }} ; INSERT DATA {{ ex:q ex:value {value} }}")
        seen.append([client.news() for client in clients])
    assert seen == [
        [([("s", "4")], []), None],
        [([("s", "8")], [("s", "4")]), ([("s", "8")], [])],
        [([("s", "5")], [("s", "8")]), ([], [("s", "8")])],
        [([], [("s", "5")]), None],
    ]
    assert memory.held > 0
    for client in clients:
        engine.unsubscribe(client.spuid)
    assert memory.held == 0
