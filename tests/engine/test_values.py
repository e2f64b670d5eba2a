"""Long VALUES and IN lists use an index, with the same results as a sequential search."""

from __future__ import annotations

import random

import pytest
from engine_client import PREFIX, Client, update
from engine_world import World, new_engine
from oracle import Query

from tests.support.settings import query_rules

NODES = ("ex:a", "ex:b", "ex:c", "1", "2", "1.0", '"x"', '"x"@en')
ROWS = 12
MANY = 200
"""Rows and triples."""


def rows(source: random.Random, columns: int) -> str:
    """Return rows with UNDEF, some of them twice."""
    drawn = []
    for _ in range(ROWS):
        cells = [source.choice((*NODES, "UNDEF")) for _ in range(columns)]
        drawn += [f"({' '.join(cells)})"] * source.choice((1, 1, 2))
    return " ".join(drawn)


WHERE = (
    "?a ex:p ?b VALUES (?a ?b) { %s }",
    "VALUES (?a ?b) { %s } ?a ex:p ?b",
    "VALUES (?a ?b) { %s } OPTIONAL { ?a ex:p ?b }",
    "?a ex:p ?b OPTIONAL { VALUES (?b ?c) { %s } ?c ex:q ?d }",
    "?a ex:p ?b OPTIONAL { VALUES (?b ?c) { %s } }",
    "?a ex:p ?b OPTIONAL { ?a ex:q ?c } VALUES (?b ?c) { %s }",
    "?a ex:p ?b MINUS { VALUES (?a ?b) { %s } }",
    "?a ex:p ?b FILTER NOT EXISTS { ?b ex:q ?c VALUES (?c ?d) { %s } }",
    "?a ex:p ?b FILTER EXISTS { ?b ex:q ?c VALUES (?c ?d) { %s } ?c ex:p ?d }",
    "{ SELECT DISTINCT ?b { VALUES (?b ?c) { %s } } } ?a ex:p ?b",
    "{ ?a ex:p ?b } UNION { ?b ex:q ?a } VALUES (?a ?c) { %s }",
    "VALUES (?a ?c) { %s } VALUES (?c ?b) { (1 ex:a) (UNDEF 2) (UNDEF ex:b) (1 UNDEF) } ?a ex:p ?b",
)


@pytest.mark.parametrize("where", WHERE)
def test_a_long_values_block_has_its_standard_meaning(where):
    source = random.Random(where)
    world = World()
    for number in range(4):
        pattern = where % rows(source, 2)
        world.subscribe(Query(f"{PREFIX} SELECT * {{ {pattern} }}"), f"select {number}")
        world.update([f"INSERT {{ ?a ex:r ?b }} WHERE {{ {pattern} }}"], PREFIX)
        for _ in range(4):
            subject, object_ = source.choice(NODES[:3]), source.choice(NODES)
            verb = source.choice(("INSERT", "INSERT", "DELETE"))
            world.update([f"{verb} DATA {{ {subject} {source.choice(('ex:p', 'ex:q'))} {object_} }}"], PREFIX)


def test_texts_of_one_shape_have_their_own_values():
    engine = new_engine()
    update(engine, "INSERT DATA { ex:s ex:p " + " , ".join(map(str, range(40))) + " }")
    tens = [" ".join(map(str, range(n, n + 10))) for n in range(0, 40, 10)]
    clients = [Client(engine, f"SELECT ?o {{ ?s ex:p ?o VALUES ?o {{ {ten} }} }}") for ten in tens]
    for ten, client in zip(tens, clients, strict=True):
        assert client.news() == (sorted((number,) for number in ten.split()), [])
    update(engine, "DELETE DATA { ex:s ex:p 25 } ; INSERT DATA { ex:t ex:p 15 }")
    assert [client.news() for client in clients] == [None, ([("15",)], []), ([], [("25",)]), None]
    for ten in tens:
        update(engine, f"INSERT {{ ex:in ex:p ?o }} WHERE {{ ex:s ex:p ?o FILTER(?o IN ({ten.replace(' ', ', ')})) }}")
        assert clients[tens.index(ten)].news() is not None
    assert len(engine.graph) == 39 + 1 + 39


@pytest.mark.parametrize(
    "where",
    [
        "?s ex:p ?o VALUES ?s { %s }",
        "VALUES ?s { %s } ?s ex:p ?o",
        "?s ex:p ?o OPTIONAL { VALUES ?s { %s } }",
        "?s ex:p ?o VALUES (?s ?o) { %s }",
        "?s ex:p ?o MINUS { VALUES ?s { %s } }",
        "?s ex:p ?o FILTER NOT EXISTS { ?s ex:p ?z VALUES ?z { %s } }",
        "?s ex:p ?o FILTER(?s IN (%s))",
        "?s ex:p ?o FILTER(?o NOT IN (%s))",
    ],
)
@pytest.mark.parametrize("form", ["ex:s%d", "%d"])
def test_long_values_are_looked_up_by_index(where, form):
    """The index needs a fifth of the steps of a sequential search."""
    world = World(query_rules(max_steps=MANY * MANY // 5))
    world.update(["INSERT DATA { " + " ".join(f"ex:s{n} ex:p {form % n} ." for n in range(MANY)) + " }"], PREFIX)
    items = [form % number for number in range(MANY // 2, MANY)]
    if "(?s ?o)" in where:
        items = [f"(ex:s{n} UNDEF) (UNDEF {item})" for n, item in enumerate(items)]
    pattern = where % (", " if " IN " in where else " ").join(items)
    world.subscribe(Query(f"{PREFIX} SELECT * {{ {pattern} }}"))
    assert world.update([f"INSERT {{ ?s ex:r ?o }} WHERE {{ {pattern} }}"], PREFIX)
    more = " ".join(f"ex:s{n} ex:p {form % (n + 1)} , 1.5 ." for n in range(0, MANY, 2))
    assert world.update([f"INSERT DATA {{ {more} }}"], PREFIX)
    assert world.update(["DELETE WHERE { ?s ex:p 1.5 }"], PREFIX)
