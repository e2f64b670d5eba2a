"""Query text to algebra, and the refused queries."""

from __future__ import annotations

import pytest

from edge.outbox.observation import OWL_TIME, QUDT, SOSA
from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.sparql import relational
from spark_offload.sparql.parsing import parse
from spark_offload.sparql.relational import (
    Basic,
    ComputedColumn,
    FunctionCall,
    LeftOuterJoin,
    Projection,
    Selection,
    TriplePattern,
)
from spark_offload.sparql.stars import split

EX = "http://example.org/"
PREFIXES = f"PREFIX ex: <{EX}> PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}> "


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT * { SERVICE <http://example.org/s> { ?s ?p ?o } }", "SERVICE"),
        ("SELECT ?x { ?x ex:p ?y } GROUP BY ?y", r"\?x"),
        ("SELECT (SUM(?y) AS ?t) { ?x ex:p ?y } GROUP BY ?x HAVING (?t > 1)", r"\?t"),
        ("SELECT * { ?x ex:p ?y } GROUP BY ?x", r"SELECT \*"),
        ("SELECT * { ?s ex:p ?o BIND (1 AS ?o) }", r"\?o"),
        ("SELECT (1 AS ?o) { ?s ex:p ?o }", r"\?o"),
        ("SELECT * { ?s ex:p ?o FILTER (COUNT(?o) > 1) }", "COUNT"),
        ("SELECT * { GRAPH ?g { SELECT ?o { ?s ex:p ?o } LIMIT 1 } }", "LIMIT inside GRAPH"),
        ("SELECT * { GRAPH ?g { SELECT (COUNT(*) AS ?n) { ?s ex:p ?o } } }", "inside GRAPH"),
        ("SELECT * { VALUES (?a ?b) { (1) } }", "1 values for 2 variables"),
        ("SELECT * { ?s ex:p ?o", "line 1, column"),
        ("SELECT * { ?s other:p ?o }", "other"),
        ("INSERT DATA { ex:a ex:b ex:c }", "not a valid SPARQL query"),
    ],
)
def test_unsupported_syntax_is_refused_by_name(query: str, named: str) -> None:
    with pytest.raises(QueryRefused, match=named):
        parse(PREFIXES + query)


def test_literals_stay_as_they_are_written() -> None:
    query = parse('SELECT * { ?s ?p "01"^^<http://www.w3.org/2001/XMLSchema#integer>, 2.50, "\\u00e9abcd" }')
    assert [triple.object.value for triple in triples(query.pattern)] == ["01", "2.50", "éabcd"]


def test_prefixed_names_lose_their_backslashes() -> None:
    (triple,) = triples(parse(f"PREFIX ex: <{EX}> SELECT * {{ ?s ?p ex:a\\/b\\.c }}").pattern)
    assert triple.object.value == f"{EX}a/b.c"


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("SELECT * { ?b ex:p ?a . ?a ex:p ?c FILTER (?d > 1) MINUS { ?e ex:p ?f } }", ("b", "a", "c")),
        ("SELECT * { ?b ex:p/ex:q [ ex:r ?a ] FILTER EXISTS { ?b ex:s ?x } }", ("b", "a")),
        ("SELECT * { { SELECT ?b { ?a ex:p ?b } } BIND (1 AS ?z) }", ("b", "z")),
        ("SELECT ?x ?y ?x { ?x ex:p ?o }", ("x", "y")),
    ],
)
def test_the_variables_of_a_projection(query: str, variables: tuple[str, ...]) -> None:
    assert parse(PREFIXES + query).variables == variables


def test_a_false_condition_is_kept() -> None:
    pattern = parse("SELECT * { FILTER (false) }").pattern
    assert isinstance(pattern, Projection)
    assert isinstance(pattern.pattern, Selection)


def test_patterns_around_bind_are_one() -> None:
    pattern = parse(PREFIXES + "SELECT ?k { ?s ex:p ?o BIND (?o * 2 AS ?k) ?s ex:q ?r }").pattern
    assert isinstance(pattern, Projection)
    assert isinstance(pattern.pattern, ComputedColumn)
    assert len(triples(pattern.pattern)) == 2


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        ("?s ex:p ?o GRAPH ex:g { ?s ex:q ?r } GRAPH ex:h { ?r ex:q ?v }", 3),
        ("GRAPH ex:g { ?s ex:q ?r } ?r ex:q ?v GRAPH ex:h { ?v ex:q ?w } ?w ex:p ?s", 4),
        # The two patterns of the default graph have no common variable: one pattern would be a cross product.
        ("{ ?s ex:p ?o GRAPH ex:g { ?s ex:q ?r } } { ?r ex:q ?v GRAPH ex:h { ?v ex:q ?w } }", 4),
    ],
)
def test_patterns_of_several_graphs_are_joined(patterns: str, count: int) -> None:
    query = parse(f"{PREFIXES} SELECT * {{ {patterns} }}")
    assert repr(query.pattern).count("Basic(") == count


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        ("?s ex:q ?r . ?r ex:q ?v", 1),
        ("?s ex:q _:r BIND (?o + 1 AS ?k) FILTER (?v > 1) _:r ex:q ?v", 1),
        ("?s ex:q [ ex:q ?v ; ex:r [ ex:q ?w ] ]", 1),
        ("?s ex:q ?r . ?o ex:q ?v", 2),  # no common variable
        ("?s ex:q ?r GRAPH ex:g { ?r ex:q ?v }", 2),
        ("?s ex:q ?r OPTIONAL { ?s ex:r 1 } ?r ex:q ?v", 3),
        ("?s ex:q ?r MINUS { ?s ex:r 1 } ?r ex:q ?v", 3),
        ("{ ?s ex:q ?r FILTER (?s > 1) } ?r ex:q ?v", 2),
        ("GRAPH ex:g { ?o ex:q ?v } ?v ex:q ?w GRAPH ex:g { ?w ex:q ?z }", 3),  # no cross product
    ],
)
def test_connected_patterns_after_a_subquery_are_one(patterns: str, count: int) -> None:
    query = parse(f"{PREFIXES} SELECT * {{ {{ SELECT ?s ?o {{ ?s ex:p ?o }} }} {patterns} }}")
    assert repr(query.pattern).count("Basic(") == count + 1


def test_bind_stays_before_patterns_that_bind_its_variables() -> None:
    pattern = parse(PREFIXES + "SELECT ?k { ?s ex:p ?o BIND (?r AS ?k) ?s ex:q ?r }").pattern
    assert isinstance(pattern, Projection)
    assert isinstance(pattern.pattern, relational.InnerJoin)


def test_the_condition_of_optional() -> None:
    pattern = parse(PREFIXES + "SELECT * { ?s ex:p ?o OPTIONAL { ?s ex:q ?r FILTER (?r > ?o) } }").pattern
    assert isinstance(pattern, Projection)
    assert isinstance(pattern.pattern, LeftOuterJoin)
    assert pattern.pattern.condition == FunctionCall(">", (Variable("r"), Variable("o")))


def test_equal_aggregates_are_one() -> None:
    pattern = parse("SELECT ?s (SUM(?o) AS ?t) { ?s ?p ?o } GROUP BY ?s HAVING (SUM(?o) > 1) ORDER BY SUM(?o)").pattern
    groups = [node for node in nodes(pattern) if isinstance(node, relational.Aggregation)]
    assert [len(group.aggregates) for group in groups] == [1]


def test_an_observation_is_one_star() -> None:
    (star,), rest = split(
        triples(
            parse(
                PREFIXES + "SELECT * { ?o a sosa:Observation ; sosa:madeBySensor ?s ; ex:note ?n ; sosa:hasResult ?r ."
                " ?r qudt:numericValue ?v ; time:hasTime/time:inXSDDateTimeStamp ?t }"
            ).pattern
        )
    )
    assert dict(star.cells) == {"sensor": Variable("s"), "value": Variable("v"), "ts": Variable("t")}
    assert dict(star.resources)["observation"] == Variable("o")
    assert [triple.predicate.value for triple in rest] == [f"{EX}note"]


def test_observations_that_share_nothing_are_stars_of_their_own() -> None:
    stars, rest = split(
        triples(parse(PREFIXES + "SELECT * { ?o sosa:madeBySensor ?s . ?p sosa:madeBySensor ?s }").pattern)
    )
    assert [dict(star.resources) for star in stars] == [
        {"observation": Variable("o")},
        {"observation": Variable("p")},
    ]
    assert not rest


@pytest.mark.parametrize(
    "patterns",
    [
        "?o ?p ?x",
        "?o a ?class",
        "?o a ex:Class",
        "?o sosa:madeBySensor ?s ; qudt:numericValue ?v",
        "?o sosa:hasResult ?o",
        '?o sosa:hasResult "text"',
    ],
)
def test_patterns_without_rows_are_not_stars(patterns: str) -> None:
    stars, rest = split(triples(parse(PREFIXES + f"SELECT * {{ {patterns} }}").pattern))
    assert not stars
    assert rest


def nodes(pattern: relational.Pattern) -> list[relational.Pattern]:
    inside = [getattr(pattern, name, None) for name in ("pattern", "left", "right")]
    return [pattern, *(node for inner in inside if inner is not None for node in nodes(inner))]


def triples(pattern: relational.Pattern) -> tuple[TriplePattern, ...]:
    return tuple(triple for node in nodes(pattern) if isinstance(node, Basic) for triple in node.triples)
