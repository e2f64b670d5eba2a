"""The step budget ends an evaluation that blocks others, even if it never finds a solution."""

from __future__ import annotations

import pytest
from engine_client import Client, refused, triples, update
from engine_world import new_engine

from edge.engine.engine import Engine
from edge.engine.requests import SubscribeFailed
from edge.protocol.errors import ResultTooLarge
from tests.support.settings import query_rules

STEPS = 5000
NUMBERS = " ".join(f"ex:s{number} ex:p {number} ." for number in range(40))
LIST = ", ".join(f"{number}.5e0" for number in range(1000))
MANY = " ".join(map(str, range(100)))
LONG = " || ".join(["?b < 0"] * 150)

ENDLESS = {
    "a join": "?a ?p ?b . ?c ?q ?d . ?e ?r ?f FILTER(?b + ?d + ?f = 0.5)",
    "triples that do not match": "?a ex:p ?b . ?c ex:p ?d . ?e ?e ?f . ?f ?f ?e",
    "OPTIONAL": "?a ex:p ?b OPTIONAL { ?c ex:p ?d . ?e ex:p ?f FILTER(?d + ?f = 0.5) } FILTER(!BOUND(?a))",
    "MINUS": "?a ex:p ?b MINUS { ?a ex:p ?z . ?c ex:p ?d . ?e ex:p ?f FILTER(?d + ?f = 0.5) } FILTER(?b = 0.5)",
    "EXISTS": "?a ex:p ?b FILTER EXISTS { ?a ex:p ?z . ?c ex:p ?d . ?e ex:p ?f FILTER(?d + ?f = 0.5) }",
    "UNION": "{ ?a ex:p ?b } UNION { ?b ex:p ?a } { ?c ex:p ?d } UNION { ?d ex:p ?c } ?e ex:p ?f FILTER(?b + ?d = 0.5)",
    "groups of nothing": "{ } UNION { } . " * 14 + "?a ex:p ?b FILTER(?b = 0.5)",
    "BIND": "?a ex:p ?b . ?c ex:p ?d . ?e ex:p ?f BIND(?b + ?d + ?f AS ?g) FILTER(?g = 0.5)",
    "GRAPH": "GRAPH ?g { } GRAPH ?h { } GRAPH ?i { } GRAPH ?j { } ?a ex:p ?b FILTER(?b = 0.5)",
    "triples of graphs": "GRAPH ?g { ?a ?p ?b } GRAPH ?h { ?c ?q ?d } GRAPH ?i { ?e ?r ?f } FILTER(?b + ?d + ?f = 0.5)",
    "a few rows": " ".join(f"VALUES ?v{number} {{ 1 2 3 4 }}" for number in range(8))
    + "?a ex:p ?b FILTER(?v1 + ?b = 0.5)",
    "many rows": f"VALUES ?v {{ {MANY} }} VALUES ?w {{ {MANY} }} ?a ex:p ?b FILTER(?b + ?v + ?w = 0.5)",
    "a list": f"?a ex:p ?b FILTER(?b IN ({LIST}))",
    "a long expression": f"?a ex:p ?b FILTER({LONG})",
    "what Oxigraph is asked": "?a ex:p ?b . ?c ex:p ?d FILTER(REGEX(STR(?b + ?d), 'x'))",
    "a sub-query": "{ SELECT DISTINCT ?a { ?a ex:p ?b . ?c ex:p ?d . ?e ex:p ?f FILTER(?b + ?d + ?f = 0.5) } }",
    "groups": "{ SELECT (SUM(?b) AS ?n) { ?a ex:p ?b . ?c ex:p ?d . ?e ex:p ?f FILTER(?b + ?d = ?f + 0.5) } }",
}


@pytest.fixture
def engine() -> Engine:
    engine = new_engine(query_rules(max_steps=STEPS))
    update(engine, f"INSERT DATA {{ {NUMBERS} }}")
    for number in range(9):
        update(engine, f"INSERT DATA {{ GRAPH ex:g{number} {{ {NUMBERS if number == 0 else 'ex:a ex:b 1'} }} }}")
    return engine


@pytest.mark.parametrize("where", ENDLESS.values(), ids=ENDLESS)
def test_an_update_over_its_step_budget_changes_nothing_and_the_next_is_executed(engine, where):
    text = (
        f"PREFIX ex: <http://example.org/> INSERT DATA {{ ex:a ex:b 0 }} ; INSERT {{ ?a ex:x 1 }} WHERE {{ {where} }}"
    )
    assert "engine.max_steps" in refused(engine, text, ResultTooLarge)
    update(engine, "INSERT { ?a ex:x ?b } WHERE { ?a ex:p ?b FILTER(?b < 2) }")
    assert {"s0 x 0", "s1 x 1"} <= {triple.replace('"', "").split("^^")[0] for triple in triples(engine)}


@pytest.mark.parametrize("where", ENDLESS.values(), ids=ENDLESS)
def test_a_subscription_that_takes_too_long_is_refused(engine, where):
    with pytest.raises(ResultTooLarge, match=r"engine\.max_steps"):
        Client(engine, f"SELECT * {{ {where} }}")
    assert engine.spus.spus == 0
    assert len(Client(engine, "SELECT * { ?a ex:p ?b }").last.delta.added) == 40


GROWING = {
    "a join": "?a ex:p ?b . ?c ex:q ?d . ?e ex:q ?f FILTER(?d + ?f = 0.5)",
    "OPTIONAL": "?a ex:p ?b OPTIONAL { ?c ex:q ?d . ?e ex:q ?f FILTER(?d + ?f = 0.5) }",
    "branches": "{ ?a ex:p ?b } UNION { ?a ex:r ?b } ?c ex:q ?d . ?e ex:q ?f FILTER(?d + ?f = 0.5)",
}


@pytest.mark.parametrize("where", GROWING.values(), ids=GROWING)
def test_a_subscription_over_its_step_budget_ends_with_the_reason_and_the_update_stays(engine, where):
    client = Client(engine, f"SELECT * {{ {where} }}")
    other = Client(engine, "SELECT ?v { ex:x ex:p ?v }")
    other.news()
    update(engine, "INSERT DATA { ex:x ex:q " + " , ".join(map(str, range(100))) + " }")
    update(engine, "INSERT DATA { ex:x ex:p 7 }")
    failure = client.items[-1]
    assert isinstance(failure, SubscribeFailed)
    assert "engine.max_steps" in failure.description
    assert other.news() == ([("7",)], [])
    assert "x p 7" in {triple.replace('"', "").split("^^")[0] for triple in triples(engine)}
    assert engine.spus.subscriptions == 1


def test_only_members_over_the_step_budget_end(engine):
    query = "SELECT * { ?room ex:name %s ; ex:has ?a . ?room ex:has ?b . ?room ex:has ?c FILTER(?a + ?b + ?c = 0.5) }"
    clients = [Client(engine, query % number) for number in range(3)]
    for number, things in enumerate((1, 60, 2)):
        update(engine, f"INSERT DATA {{ ex:r{number} ex:has {' , '.join(map(str, range(things)))} }}")
    update(engine, "INSERT DATA { ex:r0 ex:name 0 . ex:r1 ex:name 1 . ex:r2 ex:name 2 }")
    assert [isinstance(client.items[-1], SubscribeFailed) for client in clients] == [False, True, False]
    clients[2].items.clear()
    update(engine, "INSERT DATA { ex:r2 ex:has 0.25 }")
    assert len(clients[2].last.delta.added) == 3


MANY_MATCHES = {
    "triples of a predicate": "?a ex:many ?b FILTER(?b = 0.5)",
    "objects of a subject": "ex:one ex:many ?b FILTER(?b = 0.5)",
    "all triples": "?a ?p ?b FILTER(?b = 0.5)",
    "graphs without a match": "GRAPH ?g { ?a ex:nothing ?b }",
    "rows": f"VALUES ?b {{ {' '.join(map(str, range(STEPS)))} }} FILTER(?b = 0.5)",
}


@pytest.mark.parametrize("where", MANY_MATCHES.values(), ids=MANY_MATCHES)
def test_a_single_look_up_ends_in_time_even_if_a_filter_rejects_all_matches(engine, where):
    for first in range(0, STEPS, 1000):
        numbers = range(first, first + 1000)
        update(engine, f"INSERT DATA {{ ex:one ex:many {', '.join(map(str, numbers))} }}")
        if "GRAPH" in where:
            update(
                engine, f"INSERT DATA {{ {' '.join(f'GRAPH ex:h{number} {{ ex:a ex:b 1 }}' for number in numbers)} }}"
            )
    text = f"PREFIX ex: <http://example.org/> INSERT {{ ex:a ex:x 1 }} WHERE {{ {where} }}"
    assert "engine.max_steps" in refused(engine, text, ResultTooLarge)
    assert engine.graph.budget.left == -1


def test_every_evaluation_has_all_steps(engine):
    for number in range(100):
        client = Client(engine, "SELECT * { ?a ex:p ?b . ?c ex:p ?d FILTER(?b + ?d = 78) }")
        assert len(client.last.delta.added) == 1
        update(engine, f"INSERT {{ ex:n ex:is {number} }} WHERE {{ ?a ex:p ?b . ?c ex:p ?d FILTER(?b + ?d = 78) }}")


def test_changed_solutions_are_applied_completely(engine):
    """An aggregate in the middle of its rows could not be rolled back."""
    query = f"SELECT (SUM(IF({LONG}, 0, ?b)) AS %s) {{ ex:x ex:q ?b }}"
    client = Client(engine, query % "?n")
    client.news()
    update(engine, "INSERT DATA { ex:x ex:q " + " , ".join(map(str, range(100))) + " }")
    assert client.news() == ([("4950",)], [("0",)])
    with pytest.raises(ResultTooLarge):  # the evaluation first applies all changes
        Client(engine, query % "?m")
    update(engine, "DELETE DATA { ex:x ex:q 50 }")
    assert client.news() == ([("4900",)], [("4950",)])


def test_patterns_of_one_graph_are_joined_with_those_around_them():
    """Each pattern in GRAPH follows the one that binds its subject. Before those around, they are a cross product."""
    pairs = 400
    engine = new_engine(query_rules(max_steps=pairs * pairs // 4))
    values = " ".join(f"ex:x{n} ex:r {n} . ex:y{n} ex:r {n} ." for n in range(pairs))
    sensors = " ".join(f"ex:x{n} ex:by ex:s{n} . ex:y{n} ex:by ex:s{n} ; a ex:Y ." for n in range(pairs))
    update(engine, f"INSERT DATA {{ {sensors} GRAPH ex:w {{ {values} }} }}")
    where = "GRAPH ex:w { ?x ex:r ?v . ?y ex:r ?u } ?x ex:by ?s . ?y ex:by ?s ; a ex:Y"
    update(engine, f"INSERT {{ ?s ex:pair ?u }} WHERE {{ {where} }}")
    assert sum("pair" in triple for triple in triples(engine)) == pairs
