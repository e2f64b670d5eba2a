"""`edge-history query`: a query in a file, the answer in the requested format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from history_data import numbered, readings, write

from spark_offload import results
from spark_offload.cli import edge_history, engines
from spark_offload.embedded.client import Client
from spark_offload.errors import EngineRefused, HistoryError, QueryRefused
from spark_offload.spark_errors import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>\n"
SELECT = PREFIXES + "SELECT ?s ?v { ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v } ORDER BY ?v"
ASK = PREFIXES + "ASK { ?o sosa:hasResult/qudt:numericValue ?v FILTER(?v > 21) }"
CONSTRUCT = PREFIXES + "CONSTRUCT { ?s <urn:saw> ?v } { ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v }"

Run = Callable[..., Result]
ONCE = pytest.mark.parametrize("run", ["spark"], indirect=True)
"""Marks tests that select their engines themselves."""


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("history") / "table"
    stored = numbered(readings("a1", ["20", "21.5"]))
    write(spark, path, stored[:1])
    return write(spark, path, stored[1:])


@pytest.fixture(params=["spark", "duckdb"])
def run(request: pytest.FixtureRequest, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def called(text: str, *options: str) -> Result:
        return CliRunner().invoke(
            edge_history, ["query", "-", "--table", table, "--engine", request.param, *options], input=text
        )

    return called


@ONCE
def test_query_is_read_from_a_file(run: Run, table: str) -> None:
    Path("all.rq").write_text(SELECT)
    result = CliRunner().invoke(edge_history, ["query", "all.rq", "--table", table, "--format", "table"])
    assert result.stdout.splitlines() == [
        "?s                              ?v",
        "------------------------------  ----",
        "<http://example.org/sensor/a1>  20",
        "<http://example.org/sensor/a1>  21.5",
        "(2 results)",
    ]


def test_output_to_a_pipe_is_json(run: Run) -> None:
    found = json.loads(run(SELECT).stdout)
    assert [row["v"]["value"] for row in found["results"]["bindings"]] == ["20", "21.5"]
    assert json.loads(run(ASK).stdout) == {"head": {}, "boolean": True}
    assert sorted(run(CONSTRUCT).stdout.splitlines()) == [
        f'<http://example.org/sensor/a1> <urn:saw> "{value}"^^<http://www.w3.org/2001/XMLSchema#decimal> .'
        for value in ("20", "21.5")
    ]


def test_describe_has_the_formats_of_construct(run: Run) -> None:
    lines = run(PREFIXES + "DESCRIBE ?r { ?r qudt:numericValue 20.0 } ").stdout.splitlines()
    assert lines == []
    lines = run(PREFIXES + "DESCRIBE ?r { ?r qudt:numericValue ?v FILTER(?v = 20) }").stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("<http://example.org/observation/a1/") for line in lines)


def test_the_file_name_selects_the_format(run: Run) -> None:
    assert run(SELECT, "--out", "found.csv").exit_code == 0
    assert Path("found.csv").read_bytes() == (
        b"s,v\r\nhttp://example.org/sensor/a1,20\r\nhttp://example.org/sensor/a1,21.5\r\n"
    )
    assert run(CONSTRUCT, "--out", "made.ttl").exit_code == 0
    assert "@prefix sosa:" in Path("made.ttl").read_text()


@ONCE
def test_parquet_is_written_by_spark(run: Run) -> None:
    assert run(SELECT, "--out", "found.parquet").exit_code == 0
    rows = ds.dataset("found.parquet", exclude_invalid_files=True).to_table().to_pylist()
    assert [row["v"] for row in rows] == [
        f'"{value}"^^<http://www.w3.org/2001/XMLSchema#decimal>' for value in ("20", "21.5")
    ]


def test_version_option_queries_an_earlier_version(run: Run) -> None:
    assert len(json.loads(run(SELECT, "--version", "1").stdout)["results"]["bindings"]) == 1


@ONCE
def test_explain_prints_the_physical_plan(run: Run) -> None:
    assert "== Physical Plan ==" in run(SELECT, "--explain", "--engine", "spark").stdout
    explained = run(SELECT, "--explain", "--engine", "duckdb").stdout
    assert "a star: one scan of rows" in explained
    assert "DuckDB's plan:" in explained


@ONCE
def test_a_full_temporary_directory_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Path("/dev/full").open("w+b"))  # noqa: SIM115
    assert "set TMPDIR" in str(run(SELECT, "--engine", "auto").exception)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (SELECT, ["--format", "turtle"], "turtle is not a format for SELECT"),
        (CONSTRUCT, ["--format", "csv"], "choose one of turtle, ntriples, json, xml, parquet"),
        (SELECT, ["--format", "parquet"], "needs --out"),
    ],
)
def test_wrong_usage_is_reported(run: Run, text: str, options: list[str], reason: str) -> None:
    result = run(text, *options)
    assert (result.exit_code, reason in result.stderr) == (2, True)


@ONCE
def test_an_error_of_spark_is_reported(run: Run, table: str) -> None:
    shutil.copytree(table, "damaged")
    file = next(Path("damaged").rglob("*.parquet"))
    file.unlink()
    asked = run(SELECT, "--table", str(Path("damaged").absolute()), "--engine", "spark")
    assert asked.exception is not None
    assert file.name in error_text(asked.exception)
    assert error_text(ValueError("none of Spark's")) == ""


def test_an_error_leaves_the_output_file_as_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(answer: object, form: str, written: IO[bytes]) -> None:
        written.write(b"the first rows")
        raise QueryRefused("an invalid term")

    Path("found.csv").write_text("before")
    with monkeypatch.context() as failing:
        failing.setattr(results, "write_solutions", fails)
        assert isinstance(run(SELECT, "--out", "found.csv").exception, QueryRefused)
    assert [(path.name, path.read_text()) for path in Path().iterdir()] == [("found.csv", "before")]
    assert run(SELECT, "--out", "/dev/null").exit_code == 0
    assert Path("/dev/null").is_char_device()


@ONCE
def test_auto_continues_with_spark_if_duckdb_fails_or_takes_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Client.to_table_as_iterator

    def ends(client: Client, plan: object, observations: object = None) -> Iterator[object]:
        yield next(rows(client, plan))
        raise EngineRefused("the first rows were written")

    wanted = json.loads(run(SELECT).stdout)
    with monkeypatch.context() as failing:
        failing.setattr(Client, "to_table_as_iterator", ends)
        result = run(SELECT, "--engine", "auto")
    assert json.loads(result.stdout) == wanted
    assert "Spark answers: the first rows were written" in result.stderr
    monkeypatch.setattr(engines, "TIME_LIMIT", 0)
    result = run(SELECT, "--engine", "auto")
    assert json.loads(result.stdout) == wanted
    assert "Spark answers: DuckDB did not answer within 0 s" in result.stderr


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("SELECT ?s WHERE {\n  ?s ?p \n}", [], "line 3, column 1"),
        ("SELECT * { SERVICE <urn:s> { ?s ?p ?o } }", [], "SERVICE"),
        ('ASK { ?s ?p ?o FILTER(REGEX(STR(?s), "\\\\p{IsGreek}")) }', [], "IsGreek"),
        (SELECT, ["--version", "99"], "no version 99"),
        (SELECT, ["--out", "no/such/found.csv"], "cannot be written"),
    ],
)
def test_invalid_query_is_reported(run: Run, text: str, options: list[str], reason: str) -> None:
    result = run(text, *options)
    with pytest.raises(HistoryError, match=reason):
        raise result.exception or AssertionError(result.output)
