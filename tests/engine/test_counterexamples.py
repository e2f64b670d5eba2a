"""Failures that generated stories have found, as named tests."""

from __future__ import annotations

import pytest
from engine_world import World
from generated_patterns import PREFIX
from oracle import Query

SUBSCRIBED = (
    # variables that a sub-query hides, and their multiplicity
    "SELECT ?b { { SELECT ?a { ?a ex:p ?b } } }",
    "SELECT ?a { { SELECT DISTINCT * { ?a ex:p ?b } } }",
    "SELECT ?c { { SELECT DISTINCT ?b { ?a ex:p ?b } } }",
    "SELECT ?b { { SELECT (MAX(STR(?b)) AS ?n) { ?a ex:p ?b } } }",
    "CONSTRUCT { ?a ex:q ?b } { { SELECT ?b { ?a ex:p ?b } } }",
    "CONSTRUCT { ?b ex:q ?b } { { SELECT ?a { ?a ex:p ?b } } }",
    "ASK { { SELECT DISTINCT ?a { ?a ex:p ?b } } FILTER(!BOUND(?b)) }",
    # two ways between the same nodes
    "SELECT ?a { ?a ex:p|ex:p ?b }",
    "SELECT ?a { ?a ex:p|ex:q ?b }",
    "SELECT ?b { ex:a ex:p|ex:q ?b }",
    "SELECT ?a { ?a (ex:p|ex:q)/ex:p ?b }",
    "SELECT ?a { ?a ^(ex:p|^ex:q) ?b }",
    "SELECT ?a { ?a !(ex:r|^ex:r) ?b }",
    # EXISTS that needs a variable for a computed value
    "SELECT ?a ?c { ?x ex:q ?c . ?a ex:q ?x FILTER EXISTS { BIND(STR(?a) AS ?y) FILTER(BOUND(?y)) } }",
    "SELECT ?a ?c { ?x ex:q ?c . ?a ex:q ?x FILTER NOT EXISTS { BIND(STR(?a) AS ?y) ?y ex:p ?z } }",
    # GRAPH with an empty pattern
    "SELECT * { GRAPH ?g { VALUES ?b { 1 } } }",
    "SELECT * { ?a ex:p ?b GRAPH ?a { VALUES ?a { UNDEF ex:a ex:a } } }",
    "SELECT * { GRAPH ?g { BIND(1 AS ?b) } }",
    # EXISTS in an aggregate
    "SELECT (SUM(IF(EXISTS { ?a ex:q ?z }, 1, 0)) AS ?n) { ?a ex:p ?b }",
    "SELECT (COUNT(*) AS ?n) (MAX(IF(EXISTS { ?a ex:p ?z }, 1, 0)) AS ?m) { ?a ex:p ?b }",
    # OPTIONAL, MINUS and EXISTS before any triple of the graph
    "SELECT ?g ?a { GRAPH ?g { OPTIONAL { ?x ex:q ?c } ?a ex:p ?b } }",
    "SELECT ?g ?a { GRAPH ?g { { OPTIONAL { ?x ex:q ?c } } UNION { ?a ex:q ?c } ?a ex:p ?b } }",
    "SELECT ?g ?a { GRAPH ?g { { VALUES ?b { 1 ex:b } FILTER NOT EXISTS { ?x ex:q ?b } } ?a ex:p ?b } }",
    "SELECT ?g ?a { GRAPH ?g { { VALUES ?b { 1 ex:b } MINUS { ?x ex:q ?b } } ?a ex:p ?b } }",
    "SELECT ?g ?a { GRAPH ?g { ?a ex:p ?b OPTIONAL { ?x ex:q ?b } } }",
    # expressions that use the graph before any triple of it
    "SELECT * { GRAPH ?g { BIND(?g AS ?n) ?a ex:p ?b } }",
    "SELECT * { GRAPH ?g { { FILTER(BOUND(?g)) } ?a ex:p ?b } }",
    "SELECT * { GRAPH ?g { ?a ex:p ?b FILTER(?g = ex:b) } }",
)


@pytest.mark.parametrize("text", SUBSCRIBED)
def test_subscriptions_found_by_random_tests(text):
    world = World()
    world.update(["INSERT DATA { ex:a ex:p ex:b }"], PREFIX)
    world.subscribe(Query(PREFIX + text))
    world.update(["INSERT DATA { ex:a ex:p ex:c ; ex:q ex:b . ex:b ex:p ex:b ; ex:q ex:a }"], PREFIX)
    world.update(["CREATE GRAPH ex:a", "INSERT DATA { GRAPH ex:b { ex:a ex:p ex:b } }"], PREFIX)
    world.update(["INSERT DATA { GRAPH ex:c { ex:c ex:q ex:b } GRAPH ex:b { ex:c ex:p ex:b } }"], PREFIX)
    world.update(["DELETE DATA { GRAPH ex:c { ex:c ex:q ex:b } }"], PREFIX)
    world.update(["DELETE WHERE { ?a ex:p ex:b }", "DROP GRAPH ex:a"], PREFIX)
    world.update(["DELETE WHERE { ?a ?p ?b }"], PREFIX)
    world.check_no_leak()


ALIKE = (
    "SELECT * {{ {} ex:n ?n . ?b ex:n ?c }}",
    "SELECT * {{ {} ex:p ?c . ?a ?b ?b . ?a ex:p ?c }}",
    "SELECT ?c {{ ?c ex:p ?b . ?c ex:p {} OPTIONAL {{ ex:b ex:n ?n }} }}",
    "SELECT * {{ ?a ex:n ?n . ?c ex:n ?n . {} ex:n ?a }}",
)


@pytest.mark.parametrize("text", ALIKE)
def test_a_change_can_match_several_patterns_of_queries_that_differ_in_constants(text):
    world = World()
    for name in ("ex:a", "ex:b", "ex:c"):
        world.subscribe(Query(PREFIX + text.format(name)), name)
    for update in (
        "INSERT DATA { ex:b ex:n 1 ; ex:p ex:b }",
        "INSERT DATA { ex:c ex:n ex:c ; ex:p ex:a . ex:g ex:p ex:a ; ex:a ex:a }",
        "DELETE WHERE { ?a ex:n ?b }",
        "DELETE WHERE { ?a ?b ?c }",
    ):
        world.update([update], PREFIX)
    world.check_no_leak()
