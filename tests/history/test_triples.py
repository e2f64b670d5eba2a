"""The table as triples: exactly those of the observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyoxigraph as ox
import pytest
from history_data import EPOCH, EXPLICIT, MAPPED, MIDNIGHT, ODD, Stored, frame, graph_of, histories, numbered, readings
from hypothesis import HealthCheck, Phase, given, settings

from edge.outbox.observation import QUDT, RDF, SOSA, Cells, ObservationContext
from spark_offload.sparql import terms
from spark_offload.triples import COLUMNS, of_cells, of_quads, triples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BULK = settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
"""Few examples, but large ones: a Spark job takes longer than a row."""


def reported(frame: DataFrame) -> list[str]:
    """Return the sorted triples as lines of N-Quads."""
    assert frame.columns == list(COLUMNS)
    return sorted(" ".join([*filter(None, row), "."]) for row in frame.collect())


@BULK
@given(histories(MAPPED, EXPLICIT, ODD, size=100))
def test_rows_are_the_quads_of_their_observations(spark: SparkSession, stored: list[Stored]) -> None:
    assert reported(triples(frame(spark, stored))) == sorted(quad for one in stored for quad in one.quads())


def test_all_characters_are_distinguished(spark: SparkSession) -> None:
    texts = [chr(code) for code in (*range(0x100), 0x2028, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600)]
    texts += ["\\\\n", "\\\n", 'a\\"\\\\"', "\\u0041", '"}', "\\"]
    stored = numbered((ObservationContext(series="urn:s", topic=f"a{text}b"), Cells(MIDNIGHT, text)) for text in texts)
    found = triples(frame(spark, stored))
    assert set(reported(found)) == graph_of(stored)
    values = found.where("predicate LIKE '%numericValue>'").select(terms.literal_text(found["object"]).alias("text"))
    assert [row.text for row in values.collect()] == texts


@pytest.mark.parametrize(
    "object_",
    [
        "<urn:o>",
        "_:b1.2",
        '"a <b> <c> ."',
        '"x> ."',
        '"\\"\\\\"',
        '"_:b"@en',
        '"a _:b"^^<urn:d>',
        '"\u2028 \u0085"',
        '<<( <urn:s> <urn:p> "o" )>>',
        "<<( <urn:s> <urn:p> <urn:o> )>>",
    ],
)
def test_quads_are_split_into_terms(spark: SparkSession, object_: str) -> None:
    lines = [f"<urn:s> <urn:p> {object_}{graph} ." for graph in ("", " <urn:g>", " _:g")]
    assert [f"{quad} ." for quad in ox.parse("\n".join(lines), format=ox.RdfFormat.N_QUADS)] == lines
    found = of_quads(
        frame(spark, numbered([(ObservationContext(), Cells(MIDNIGHT, quads="\n".join(lines)))]))
    ).collect()
    assert [tuple(row) for row in found] == [
        ("<urn:s>", "<urn:p>", object_, graph) for graph in (None, "<urn:g>", "_:g")
    ]


def test_triples_of_a_single_predicate(spark: SparkSession) -> None:
    odd = "\n".join([f"<urn:s> <{QUDT}numericValue> <urn:o> .", f"<urn:s> <{SOSA}hasResult> <urn:o> ."])
    rows = frame(spark, numbered([*readings("a1", [20]), (ObservationContext(), Cells(MIDNIGHT, quads=odd))]))
    assert reported(triples(rows, {QUDT + "numericValue"})) == [
        f"<http://example.org/observation/a1/{EPOCH}-1/result> <{QUDT}numericValue>"
        ' "20"^^<http://www.w3.org/2001/XMLSchema#decimal> .',
        f"<urn:s> <{QUDT}numericValue> <urn:o> .",
    ]
    assert of_cells(rows, {RDF + "type"}).count() == 3
    assert reported(triples(rows, {"urn:other"})) == []
    assert reported(triples(rows, set())) == []


def test_a_tombstone_is_not_a_triple(spark: SparkSession) -> None:
    rows = frame(spark, numbered(readings("a1", [20])))
    assert triples(rows.selectExpr("* EXCEPT (lost)", "5L AS lost")).count() == 0
