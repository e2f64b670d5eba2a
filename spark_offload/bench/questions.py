"""Questions to the history in two forms: in SPARQL, and written by hand on DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

from edge.outbox.observation import time_text
from spark_offload.bench.observations import BEGINNING, BUILDINGS, INTERVAL, KINDS, ROOMS, observed, sensor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIXES: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""
BRIGHT: Final = 1990
"""Threshold of a bright room (lux)."""


class Question(NamedTuple):
    """A question in both forms, which give equal results."""

    name: str
    meaning: str
    sparql: str
    """Query text without prefixes."""
    by_hand: Callable[[DataFrame], DataFrame]
    """Function from the rows of the table to the result."""


def questions(rows: int) -> list[Question]:
    """Return the questions for a table with `rows` rows. Time windows are between 80 % and 90 % of its period."""
    readings = rows // (len(BUILDINGS) * ROOMS * len(KINDS))
    # Readings of one sensor are `INTERVAL` microseconds apart, so tenths of the period are tenths of its readings.
    since, until = (time_text(BEGINNING + readings * INTERVAL * tenths // 10) for tenths in (8, 9))
    temperature, light = KINDS[0], KINDS[2]
    one = sensor(BUILDINGS[0], 0, temperature)
    return [
        Question(
            "window",
            "one sensor's values in a tenth of the time",
            f"""SELECT ?time ?value {{
                ?o sosa:madeBySensor <{one}> ; sosa:hasResult ?r . ?r qudt:numericValue ?value ; time:hasTime ?i .
                ?i time:inXSDDateTimeStamp ?time
                FILTER(?time >= "{since}"^^xsd:dateTimeStamp && ?time < "{until}"^^xsd:dateTimeStamp) }}""",
            lambda rows: rows.where(
                (F.col("sensor") == one)
                & (F.col("ts") >= F.to_timestamp(F.lit(since)))
                & (F.col("ts") < F.to_timestamp(F.lit(until)))
                & F.col("date").between(since[:10], until[:10])
            ).select("ts", "value"),
        ),
        Question(
            "hourly",
            "hourly mean of each sensor",
            """SELECT ?sensor ?day ?hour (AVG(?value) AS ?mean) {
                ?o sosa:madeBySensor ?sensor ; sosa:hasResult ?r . ?r qudt:numericValue ?value ; time:hasTime ?i .
                ?i time:inXSDDateTimeStamp ?time } GROUP BY ?sensor (DAY(?time) AS ?day) (HOURS(?time) AS ?hour)""",
            lambda rows: rows.groupBy("sensor", F.dayofmonth("ts"), F.hour("ts")).agg(F.avg("value")),
        ),
        Question(
            "highest",
            "highest temperature of each place",
            f"""SELECT ?place (MAX(?value) AS ?highest) {{
                ?o sosa:observedProperty <{observed(temperature)}> ; sosa:hasFeatureOfInterest ?place ;
                   sosa:hasResult/qudt:numericValue ?value }} GROUP BY ?place""",
            lambda rows: rows.where(F.col("property") == observed(temperature)).groupBy("feature").agg(F.max("value")),
        ),
        Question(
            "never",
            "places that were never bright (NOT EXISTS)",
            f"""SELECT DISTINCT ?place {{ ?o sosa:hasFeatureOfInterest ?place
                FILTER NOT EXISTS {{ ?p sosa:hasFeatureOfInterest ?place ; sosa:observedProperty <{observed(light)}> ;
                    sosa:hasResult/qudt:numericValue ?value FILTER(?value > {BRIGHT}) }} }}""",
            lambda rows: (
                rows.select("feature")
                .distinct()
                .join(
                    rows.where((F.col("property") == observed(light)) & (F.col("value") > BRIGHT)),
                    "feature",
                    "left_anti",
                )
            ),
        ),
        Question(
            "optional",
            "observations of each unit, with one or without (OPTIONAL)",
            """SELECT ?unit (COUNT(?o) AS ?count) { ?o sosa:hasResult ?r OPTIONAL { ?r qudt:unit ?unit } }
                GROUP BY ?unit""",
            lambda rows: rows.groupBy("unit").count(),
        ),
        Question(
            "distinct",
            "how many different values each property had",
            """SELECT ?property (COUNT(DISTINCT ?value) AS ?count) {
                ?o sosa:observedProperty ?property ; sosa:hasResult/qudt:numericValue ?value } GROUP BY ?property""",
            lambda rows: rows.groupBy("property").agg(F.countDistinct("value_text", "datatype")),
        ),
    ]
