"""Rows that contain a complete observation, so that a star query with its OPTIONALs is one scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from cached_triples import both_ways
from history_data import EX, MIDNIGHT, frame, numbered, readings

from edge.outbox.observation import OWL_TIME, QUDT, SOSA, XSD, Cells, ObservationContext
from spark_offload.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES = f"PREFIX ex: <{EX}> PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}> "
UNIT = f"{EX}unit"
ALL = """?o sosa:hasResult ?r ; sosa:madeBySensor ?s . ?r qudt:numericValue ?v ; time:hasTime ?i .
         ?i time:inXSDDateTimeStamp ?t"""
MAPPED = readings("a", ["20", "20.5"])
MANY = 6
ONE_SCAN = "one scan of rows"
JOINED = "over the triples of observations that clients wrote, joined"


def chosen(number: int, result: int | None = None, **reported: str) -> tuple[ObservationContext, Cells]:
    """Return an observation whose IRIs a client chose."""
    context = ObservationContext(sensor=f"{EX}sensor/own", datatype=XSD + "integer", **reported)
    names = (f"{EX}own/{number}", f"{EX}own/result/{number if result is None else result}", f"{EX}own/instant/{number}")
    return context, Cells(MIDNIGHT + number, str(30 + number), None, *names)


OWN = [chosen(number, **({"unit": UNIT} if number % 2 else {})) for number in range(MANY)]
QUERIES = {
    "all": f"SELECT * {{ {ALL} }}",
    "optional": "SELECT * { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:unit ?u } }",
    "optional of what is farther": """SELECT * { ?o sosa:madeBySensor ?s
        OPTIONAL { ?o sosa:hasResult ?r . ?r qudt:unit ?u ; qudt:numericValue ?v } }""",
    "two optionals": """SELECT * { ?o sosa:madeBySensor ?s ; sosa:hasResult ?r
        OPTIONAL { ?r qudt:unit ?u } OPTIONAL { ?o sosa:hasFeatureOfInterest ?f } }""",
    "an optional of a known value": """SELECT * { ?o sosa:observedProperty ?x
        OPTIONAL { ?o sosa:hasFeatureOfInterest ?x ; sosa:madeBySensor ?s } }""",
    "an optional constant": "SELECT * { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:unit ex:unit; qudt:numericValue ?v } }",
    "an optional of an optional": """SELECT * { ?o sosa:madeBySensor ?s
        OPTIONAL { ?o sosa:hasResult ?r } OPTIONAL { ?r qudt:unit ?u } }""",
    "one in another": """SELECT * { ?o sosa:madeBySensor ?s
        OPTIONAL { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:unit ?u } } }""",
    "two stars, and an optional of both": """SELECT * { ?o sosa:hasResult ?r . ?p sosa:hasFeatureOfInterest ?f
        OPTIONAL { ?o sosa:observedProperty ?f } }""",
    "an optional condition": "SELECT * { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:numericValue ?v FILTER(?v > 32) } }",
    "unbound": """SELECT ?o { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:unit ?u } FILTER(!BOUND(?u)) }""",
    "a constant": "SELECT * { <http://example.org/own/2> sosa:hasResult/qudt:numericValue ?v }",
    "means": f"SELECT ?u (AVG(?v) AS ?mean) {{ {ALL} OPTIONAL {{ ?r qudt:unit ?u }} }} GROUP BY ?u",
}


Asked = Callable[..., dict[str, History]]


@pytest.fixture(scope="module")
def asked(spark: SparkSession) -> Iterator[Asked]:
    """Return histories of observations, one for all tests with the same queries."""
    made: dict[str, dict[str, History]] = {}
    session = spark.newSession()

    def both(*more: tuple[ObservationContext, Cells]) -> dict[str, History]:
        if repr(more) not in made:
            rows = frame(session, numbered([*MAPPED, *OWN, *more])).coalesce(1).cache()
            made[repr(more)] = both_ways(session, rows)
        return made[repr(more)]

    yield both
    spark.catalog.clearCache()


def explained(histories: dict[str, History], query: str) -> str:
    """Return the plan over rows, if it gives the same answers as triples."""
    found, expected = (sorted(map(repr, one.sparql(PREFIXES + query).collect())) for one in histories.values())
    assert found == expected
    assert found, "a question without an answer shows nothing"
    return histories["wide"].explain(PREFIXES + query)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_rows_and_triples_have_the_same_result(asked: Asked, query: str) -> None:
    explained(asked(chosen(9, property=f"{EX}p", feature=f"{EX}p")), query)


def test_observations_with_iris_of_their_own_are_one_scan(asked: Asked) -> None:
    reported = explained(asked(), QUERIES["all"])
    assert ONE_SCAN in reported
    assert JOINED not in reported


@pytest.mark.parametrize(
    "more",
    [
        chosen(7, result=1),
        (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}own/result/1> <{QUDT}unit> <{EX}other> .")),
        (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}x> <{SOSA}hasResult> <{EX}own/result/1> .")),
    ],
    ids=["another observation", "quads that tell of them", "quads that point to them"],
)
def test_rows_with_additional_quads_are_joined(asked: Asked, more: tuple[ObservationContext, Cells]) -> None:
    assert JOINED in explained(asked(more), QUERIES["two optionals"])


def test_quads_about_other_subjects_cause_no_self_join(asked: Asked) -> None:
    note = (ObservationContext(), Cells(MIDNIGHT, quads=f'<{EX}own/1> <{EX}note> "broken" .'))
    explained(asked(note), "SELECT * { ?o ex:note ?note ; sosa:hasResult/qudt:numericValue ?v }")


@pytest.mark.parametrize("name", ["optional", "two optionals", "optional of what is farther"])
def test_an_optional_within_a_row_needs_no_join(asked: Asked, name: str) -> None:
    reported = explained(asked(), QUERIES[name])
    assert "Join" not in reported
    assert "  OPTIONAL " in reported
