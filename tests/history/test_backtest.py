"""`edge-history backtest`: notifications of the past, from stored observations."""

from __future__ import annotations

import asyncio
import csv
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from history_data import MIDNIGHT, SECOND, Stored, numbered, readings, write
from pyspark.sql import functions as F  # noqa: N812

from edge.backtest.program import read_program
from edge.client import Client, Endpoints
from spark_offload.backtest import backtest
from spark_offload.cli import edge_history
from spark_offload.errors import GatewayRefused, HistoryError
from spark_offload.ingest import ingest
from spark_offload.spark_errors import error_text
from tests.history import site
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>\n"
HOT = PREFIXES + "SELECT ?v { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 30) }"
MEAN = (
    PREFIXES
    + "SELECT ?p (AVG(?v) AS ?m) { ?o sosa:observedProperty ?p ; sosa:hasResult/qudt:numericValue ?v } GROUP BY ?p"
)
WINDOW = PREFIXES + (
    "REGISTER QUERY q AS SELECT (COUNT(*) AS ?n) FROM STREAM <urn:edge:stream:observations> [RANGE 2m STEP 2m] "
    "WHERE { ?o sosa:hasResult/qudt:numericValue ?v }"
)
SILENCE = 'property = "http://example.org/temperature"\nsilent = "PT10M"\n'
LIVE = (
    PREFIXES + "SELECT ?o ?v { ?o sosa:hasResult/qudt:numericValue ?v }",
    MEAN,
    PREFIXES + "SELECT ?o { ?o sosa:hasResult/qudt:numericValue ?v FILTER NOT EXISTS { ?b sosa:hasResult/"
    "qudt:numericValue ?w FILTER(?w > ?v) } }",
)

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two gateways with a value a minute, not in the order of time, and an observation of a client."""
    first = numbered(readings("a1", [31, 20, 32, 5], every=60 * SECOND))
    second = numbered(readings("b1", [1, 50], every=60 * SECOND), gateway="box-2")
    of_client = Stored(
        first[0].context._replace(series=None),
        first[0].cells._replace(observation="urn:o", result="urn:r", instant="urn:i"),
        9,
    )
    return write(spark, tmp_path_factory.mktemp("backtest") / "table", [*first[::-1], *second, of_client])


@pytest.fixture
def run(spark: SparkSession, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def called(text: str, *options: str, name: str = "test.rq", since: str = "2026-01-01T00:00:30Z") -> Result:
        Path(name).write_text(text)
        command = ["backtest", name, "--table", table, "--from", since, "--to", "2026-01-01T01:00:00Z", *options]
        return CliRunner().invoke(edge_history, command)

    return called


def test_deltas_of_each_gateway_are_printed(run: Run) -> None:
    lines = run(HOT, "--format", "csv").stdout.splitlines()
    assert lines[0] == "_gateway,_time,_number,_change,v"
    assert sorted(lines[1:]) == [
        "box-1,2026-01-01T00:00:30Z,0,added,31",
        "box-1,2026-01-01T00:01:00Z,1,removed,31",
        "box-1,2026-01-01T00:02:00Z,2,added,32",
        "box-1,2026-01-01T00:03:00Z,3,removed,32",
        "box-2,2026-01-01T00:01:00Z,1,added,50",
    ]


def test_one_gateway_is_written_to_parquet(run: Run) -> None:
    assert run(HOT, "--gateway", "box-2", "--out", "found.parquet").exit_code == 0
    (row,) = ds.dataset("found.parquet").to_table().to_pylist()
    assert row["_time"].timestamp() * SECOND == MIDNIGHT + 60 * SECOND
    assert (row["_gateway"], row["_number"], row["_change"]) == ("box-2", 1, "added")
    assert row["v"] == '"50"^^<http://www.w3.org/2001/XMLSchema#decimal>'


def test_reports_of_windows_contain_the_values_before(run: Run) -> None:
    found = list(csv.DictReader(run(WINDOW, "--gateway", "box-1", "--format", "csv").stdout.splitlines()))
    assert [(row["_time"][14:16], row["_change"], row["n"]) for row in found[:3]] == [
        ("02", "reported", "2"),
        ("04", "reported", "2"),
        ("06", "reported", "0"),
    ]


def test_a_rule_finds_silence(run: Run) -> None:
    found = run("\ufeff" + SILENCE, "--gateway", "box-1", "--format", "json", name="silence.TOML").stdout
    (row,) = json.loads(found)["results"]["bindings"]
    assert (row["_time"]["value"], row["_change"]["value"]) == ("2026-01-01T00:13:00Z", "began")
    assert row["observation"]["value"] == "http://example.org/observation/a1"


def test_context_is_in_the_graph(run: Run) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    described = f'<http://example.org/observation/b1> a sosa:Observation ; {label} "Hall" .'
    Path("context.ttl").write_text(PREFIXES + described)
    text = f"{PREFIXES}SELECT ?name {{ ?o {label} ?name ; sosa:hasResult/qudt:numericValue ?v FILTER(?v = 50) }}"
    found = run(text, "--context", "context.ttl", "--format", "csv").stdout.splitlines()
    assert found[1:] == ["box-2,2026-01-01T00:01:00Z,1,added,Hall"]


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("SELECT ?x {", "test.rq", "line 1"),
        ("SELECT ?_time { ?s ?p ?_time }", "test.rq", "rename the variable \\?_time"),
        ("SELECT ?v ?V { ?v ?p ?V }", "test.rq", "differ only in case"),
        ('property = "urn:p"\nabove = "high"', "rule.toml", "rule.toml: line 2: above"),
        (WINDOW.replace("observations", "absent"), "test.rq", "not registered"),
    ],
    ids=["syntax", "reserved", "case", "rule", "stream"],
)
def test_a_wrong_text_is_refused_before_spark_reads(run: Run, text: str, name: str, reason: str) -> None:
    with pytest.raises(HistoryError, match=reason):
        raise run(text, name=name).exception or AssertionError


def test_the_error_of_a_task_names_the_gateway(spark: SparkSession, table: str) -> None:
    # The engine refuses a result with so many solutions in between.
    heavy = "SELECT (COUNT(*) AS ?n) { " + " ".join(f"?a{n} ?b{n} ?c{n} ." for n in range(9)) + " }"
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    with pytest.raises(Exception, match="worker") as failed:
        backtest(spark, table, read_program(heavy), begin, end, gateways=["box-1"]).collect()
    assert error_text(failed.value).startswith("the backtest of the gateway box-1 failed: ")


def test_an_unexpected_error_of_a_task_names_the_gateway(spark: SparkSession, table: str) -> None:
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    broken = spark.read.format("delta").load(table).withColumn("datatype", F.lit(None).cast("string"))
    with pytest.raises(Exception, match="worker") as failed:
        backtest(spark, broken, read_program(HOT), begin, end, gateways=["box-2"]).collect()
    assert error_text(failed.value).startswith("the backtest of the gateway box-2 failed: TypeError: ")


def test_an_unknown_gateway_is_refused(run: Run) -> None:
    with pytest.raises(GatewayRefused, match="no gateway box-9; it has box-1, box-2"):
        raise run(HOT, "--gateway", "box-1", "--gateway", "box-9").exception or AssertionError


def test_gateways_are_played_in_separate_tasks(spark: SparkSession, table: str) -> None:
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    wanted = {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true"}
    before = {name: spark.conf.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        assert backtest(spark, table, read_program(HOT), begin, end).rdd.getNumPartitions() == 3
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.timeout(500)
def test_a_backtest_of_a_recorded_run_equals_the_run(spark: SparkSession, tmp_path: Path) -> None:
    with site.Site(tmp_path) as place:
        place.landing.mkdir()
        live = asyncio.run(_recorded(place, 25))
        place.await_shipped(25)
        ingest(spark, place.landing, place.table)
    begin = datetime.fromtimestamp(site.MIDNIGHT / 1000, UTC)
    for text, expected in zip(LIVE, live, strict=True):
        rows = backtest(spark, place.table, read_program(text), begin, datetime.now(UTC)).collect()
        found = [
            (number, change, Counter(row[4:] for row in some))
            for (number, change), some in groupby(rows, lambda row: (row["_number"], row["_change"]))
        ]
        assert found == expected


async def _recorded(place: site.Site, readings: int) -> list[list[tuple[int, str, Counter[tuple[str, ...]]]]]:
    """Let subscribers follow some readings. Return the deltas of each: number, change and bag of rows."""
    found: list[list[tuple[int, str, Counter[tuple[str, ...]]]]] = [[] for _ in LIVE]
    http = place.endpoints["http"]
    endpoints = Endpoints(f"{http}/query", f"{http}/update", place.endpoints["ws"])
    async with Client(endpoints) as client:
        following = [await client.subscribe(text) for text in LIVE]
        for number in range(readings + 1):
            if number:
                await asyncio.to_thread(place.publish, [number - 1])
            for deltas, subscription in zip(found, following, strict=True):
                async with asyncio.timeout(PATIENCE):
                    event = await anext(subscription)
                assert event.merged == 1
                for change, rows in (("removed", event.removed), ("added", event.added)):
                    if rows:
                        texts = (tuple(str(row[name]) for name in row) for row in rows)
                        deltas.append((event.sequence, change, Counter(texts)))
    return found
