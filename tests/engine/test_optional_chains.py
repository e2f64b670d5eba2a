"""A quad of an OPTIONAL that shares no variable with the patterns before it leads to the solutions that it affects."""

from __future__ import annotations

from collections import Counter

import pytest
from engine_client import PREFIX, Client, update
from engine_world import new_engine
from hypothesis import given
from hypothesis import strategies as st

from edge.engine.requests import Dataset, QueryRequest, SubscriberNotification
from tests.support.settings import query_rules

STEPS = 600
MANY = 400
TIMES = "?o ex:result ?r OPTIONAL { ?r ex:has ?i . ?i ex:time ?t }"

PATTERNS = {
    "two patterns": TIMES,
    "three patterns": "?o ex:result ?r OPTIONAL { ?r ex:has ?i . ?i ex:has ?j . ?j ex:time ?t }",
    "two OPTIONALs": TIMES + " OPTIONAL { ?o ex:has ?p . ?p ex:time ?u }",
    "a condition": "?o ex:result ?r OPTIONAL { ?r ex:has ?i . ?i ex:time ?t FILTER(?t != ?o) }",
    "a pattern twice": "?o ex:result ?r OPTIONAL { ?r ex:has ?i . ?i ex:time ?t . ?j ex:time ?t }",
    "two ways": "?o ex:result ?r ; ex:has ?x OPTIONAL { ?r ex:has ?i . ?x ex:has ?i . ?i ex:time ?t }",
    "a graph": "?o ex:result ?r OPTIONAL { GRAPH ?g { ?r ex:has ?i . ?i ex:time ?t } }",
    "a loop": "?o ex:result ?r OPTIONAL { ?r ex:has ?i . ?i ex:time ?i }",
    "a later pattern": TIMES + " ?o ex:has ?x",
    "a sub-select": "{ SELECT ?r ?t { " + TIMES + " } } ?x ex:has ?r",
    "an inner OPTIONAL": TIMES.replace("?i ex:time ?t", "?i ex:time ?t OPTIONAL { ?t ex:has ?u . ?u ex:time ?v }"),
    "a constant": "?o ex:result ex:a OPTIONAL { ex:a ex:has ?i . ?i ex:time ?t }",
    "within UNION": "{ " + TIMES + " } UNION { ?o ex:time ?r }",
    "within MINUS": "?o ex:result ?r MINUS { " + TIMES + " FILTER(BOUND(?t)) }",
}

names = st.sampled_from("abcd")
quads = st.tuples(names, st.sampled_from(["result", "has", "time"]), names, st.sampled_from(["", "", "", "g"]))
changes = st.lists(st.tuples(st.lists(quads, max_size=3), st.lists(quads, max_size=3)), min_size=1, max_size=6)


def as_data(some: list[tuple[str, str, str, str]]) -> str:
    triples = {True: "", False: ""}
    for subject, predicate, object_, graph in some:
        triples[graph == ""] += f"ex:{subject} ex:{predicate} ex:{object_} . "
    return f"{triples[True]} GRAPH ex:g {{ {triples[False]} }}"


def rows_of(client: Client) -> Counter:
    found: Counter = Counter()
    for item in client.items:
        assert isinstance(item, SubscriberNotification)
        found.subtract(item.delta.removed)
        found.update(item.delta.added)
    return +found


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(changes)
def test_notifications_equal_a_fresh_evaluation(pattern, story):
    engine = new_engine()
    queries = [f"SELECT * {{ {pattern.replace('?x', name)} }}" for name in ("?x", "ex:a", "ex:b")]
    clients = [Client(engine, query) for query in queries]
    for removed, added in story:
        update(engine, f"DELETE DATA {{ {as_data(removed)} }} ; INSERT DATA {{ {as_data(added)} }}")
    assert [rows_of(each) for each in clients] == [rows_of(Client(engine, query)) for query in queries]


def test_a_change_costs_the_same_however_many_solutions_there_are():
    """The step budget would end the subscription if the change evaluated all observations."""
    engine = new_engine(query_rules(max_steps=STEPS))
    client = Client(engine, f"SELECT * {{ {TIMES} }}")
    for number in range(MANY):
        update(engine, f"INSERT DATA {{ ex:o{number} ex:result ex:r{number} . ex:r{number} ex:has ex:i{number} }}")
        update(engine, f"INSERT DATA {{ ex:i{number} ex:time {number} }}")
    client.items.clear()
    update(engine, "DELETE DATA { ex:i7 ex:time 7 } ; INSERT DATA { ex:i7 ex:time 'now' }")
    assert client.news() == ([("o7", "r7", "i7", "now")], [("o7", "r7", "i7", "7")])


def test_a_quad_with_many_solutions_does_not_cost_more_than_the_whole_query():
    """The left side has one solution; the changed quad belongs to very many things that the query does not select."""
    engine = new_engine(query_rules(max_steps=STEPS))
    client = Client(engine, "SELECT * { ex:gateway ex:observes ?r OPTIONAL { ?r a ?class . ?class ex:label ?label } }")
    update(engine, "INSERT DATA { ex:gateway ex:observes ex:r1 }")
    for number in range(0, 2000, 100):
        things = " ".join(f"ex:r{each} a ex:Sensor ." for each in range(number, number + 100))
        update(engine, f"INSERT DATA {{ {things} }}")
    client.items.clear()
    update(engine, "INSERT DATA { ex:Sensor ex:label 'Sensor' }")
    assert client.news() == ([("r1", "Sensor", "Sensor")], [("r1", None, None)])


def test_the_explanation_names_the_variables_that_a_quad_leads_to():
    engine = new_engine()
    (patterns,) = engine.explain(QueryRequest(PREFIX + f"SELECT * {{ {TIMES} }}", Dataset())).parts
    assert [(each.effect, each.known) for each in patterns][-1] == ("restricted", ("?r",))


def test_a_change_of_graphs_and_patterns_counts_once_for_each_member():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:q ex:s . ex:b ex:q ex:s2 }")
    clients = [Client(engine, f"SELECT * {{ {one} ex:q ?s . ?s ex:p ?o . GRAPH ?g {{}} }}") for one in ("ex:a", "ex:b")]
    for each in clients:
        each.items.clear()
    update(engine, "INSERT DATA { ex:s ex:p ex:o GRAPH ex:g { ex:x ex:y ex:z } }")
    assert [each.news() for each in clients] == [([("s", "o", "g")], []), None]
