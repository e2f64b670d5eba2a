"""Results: the formats of SPARQL, verified with other parsers; and a table for people."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pyoxigraph as ox
import pytest
import rdflib
from history_data import TEXTS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rdflib.compare import isomorphic
from rdflib.query import Result

from edge.outbox.observation import XSD, literal
from spark_offload import results
from spark_offload.errors import QueryRefused
from spark_offload.local_rows import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BULK = settings(max_examples=2, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
TERMS = st.none() | st.one_of(
    st.sampled_from(("<urn:a>", "<http://example.org/é>", "_:b1", '"a"@en', '"a"@en-gb')),
    st.builds(
        literal, TEXTS, st.sampled_from([XSD + name for name in ("string", "integer", "double", "dateTimeStamp")])
    ),
)


def solutions(spark: SparkSession, rows: list[tuple[str | None, ...]], *names: str) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    return local_frame(spark, rows, StructType([StructField(name, StringType()) for name in names]))


def written(found: DataFrame, form: str) -> bytes:
    output = io.BytesIO()
    results.write_solutions(found, form, output)
    return output.getvalue()


@BULK
@given(st.lists(st.tuples(TERMS, TERMS), min_size=1, max_size=30))
def test_solutions_are_read_back_unchanged(spark: SparkSession, rows: list[tuple[str | None, ...]]) -> None:
    found = solutions(spark, rows, "a", "été")
    for form in ("json", "tsv"):
        read = ox.parse_query_results(written(found, form), results.SOLUTIONS[form])
        assert isinstance(read, ox.QuerySolutions)
        assert [variable.value for variable in read.variables] == ["a", "été"]
        assert [tuple(None if term is None else str(term) for term in solution) for solution in read] == rows


def test_rdflib_reads_the_results(spark: SparkSession) -> None:
    rows = [("<urn:a>", '"x\\\\y"'), (None, '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'), ("_:b", '"é"@en')]
    found = solutions(spark, rows, "a", "b")
    for form in ("json", "xml"):
        read = Result.parse(io.BytesIO(written(found, form)), format=form)
        assert [str(name) for name in read.vars or ()] == ["a", "b"]
        assert [{str(name): term.n3() for name, term in row.items()} for row in read.bindings] == [
            {"a": "<urn:a>", "b": '"x\\\\y"'},
            {"b": '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'},
            {"a": "_:b", "b": '"é"@en'},
        ]
    cells = list(csv.reader(io.StringIO(written(found, "csv").decode(), newline="")))
    assert cells == [["a", "b"], ["urn:a", "x\\y"], ["", "1"], ["_:b", "é"]]


def test_more_than_one_partition_keeps_its_order(spark: SparkSession) -> None:
    found = spark.range(0, 2500, numPartitions=5).selectExpr("""concat('"', id, '"') AS n""").orderBy("n")
    read = json.loads(written(found, "json"))["results"]["bindings"]
    assert [row["n"]["value"] for row in read] == sorted(map(str, range(2500)))


def test_results_without_variables_or_solutions(spark: SparkSession) -> None:
    assert json.loads(written(spark.range(2).select(), "json"))["results"]["bindings"] == [{}, {}]
    assert json.loads(written(solutions(spark, [], "a"), "json")) == {
        "head": {"vars": ["a"]},
        "results": {"bindings": []},
    }
    assert written(solutions(spark, [], "a"), "table").decode().splitlines() == ["?a", "--", "(0 results)"]


def test_an_invalid_term_is_reported(spark: SparkSession) -> None:
    with pytest.raises(QueryRefused, match=r"a result of the query cannot be written: .*'urn:a b'"):
        written(solutions(spark, [("<urn:a b>",)], "a"), "json")


def test_table_shortens_terms_and_escapes_control_characters(spark: SparkSession) -> None:
    rows = [
        ("<http://www.w3.org/ns/sosa/Observation>", f'"21.5"^^<{XSD}decimal>'),
        ("<http://www.w3.org/ns/sosa/a/b>", '"\\u001B[2J"'),
        ("_:b", f'"1"^^<{XSD}byte>'),
        (None, '"漢字"@ja'),
    ]
    found = solutions(spark, rows, "what", "value")
    assert written(found, "table").decode().splitlines() == [
        "?what                            ?value",
        "-------------------------------  -----------",
        "sosa:Observation                 21.5",
        "<http://www.w3.org/ns/sosa/a/b>  \\x1b[2J",
        "_:b                              1^^xsd:byte",
        "                                 漢字@ja",
        "(4 results)",
    ]


def test_long_table_is_written_completely(spark: SparkSession) -> None:
    found = spark.range(0, 2001, numPartitions=1).selectExpr("""concat('"', id, '"') AS n""", """'"x"' AS m""")
    lines = written(found, "table").decode().splitlines()
    assert len(lines) == 2001 + 3
    assert lines[2:4] == ["0    x", "1    x"]
    assert lines[-2:] == ["2000  x", "(2001 results)"]


@pytest.mark.parametrize("form", ["json", "xml", "csv", "tsv", "table"])
def test_boolean_results(form: str) -> None:
    for answer in (True, False):
        output = io.BytesIO()
        results.write_boolean(answer, form, output)
        assert ("true" in output.getvalue().decode(), "false" in output.getvalue().decode()) == (answer, not answer)


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")  # in rdflib's parser for JSON-LD
@pytest.mark.parametrize(
    ("form", "parser"), [("turtle", "turtle"), ("ntriples", "nt"), ("json", "json-ld"), ("xml", "xml")]
)
def test_graphs_are_read_back_unchanged(spark: SparkSession, form: str, parser: str) -> None:
    rows = [
        ("<urn:a>", "<http://www.w3.org/ns/sosa/hasResult>", "_:b"),
        ("_:b", "<urn:p>", f'"1"^^<{XSD}integer>'),
        ("_:b", "<urn:p>", '"a\\nb"@en'),
    ]
    output = io.BytesIO()
    results.write_graph(solutions(spark, rows, "subject", "predicate", "object"), form, output)
    expected = rdflib.Graph().parse(data="\n".join(f"{' '.join(row)} ." for row in rows), format="nt")
    assert isomorphic(rdflib.Graph().parse(data=output.getvalue(), format=parser), expected)
    assert (b"@prefix sosa:" in output.getvalue()) == (form == "turtle")
