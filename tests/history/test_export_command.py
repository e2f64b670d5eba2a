"""`edge-history export`: the output matches the options, and the command reports it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from history_data import DAY, MIDNIGHT, Stored, graph_of, numbered, readings, write

from spark_offload.cli.export import export
from spark_offload.errors import HistoryError, OutputRefused, TableRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED = [
    *numbered(readings("a1", [20, 21, 22], start=MIDNIGHT - DAY, every=DAY)),
    *numbered(readings("b1", [5]), "fedcba9876543210", "box-2"),
]


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(spark, tmp_path_factory.mktemp("history") / "table", STORED)


Run = Callable[..., Result]


@pytest.fixture(params=["spark", "duckdb"])
def run(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(export, ["--table", table, "--engine", request.param, *arguments])


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ([], STORED),
        (["--from", "2026-01-01", "--to", "2026-01-02"], [STORED[1], STORED[3]]),
        (["--from", "2026-01-01T00:00:01"], [STORED[2]]),
        (["--gateway", "box-2", "--gateway", "box-3"], [STORED[3]]),
    ],
)
def test_the_requested_part_is_written(run: Run, options: list[str], stored: list[Stored]) -> None:
    result = run("--out", "history.nq.gz", *options)
    assert result.exit_code == 0, result.output
    assert set(gzip.decompress(Path("history.nq.gz").read_bytes()).decode().splitlines()) == graph_of(stored)
    assert result.stderr == "written: history.nq.gz\n"


def test_other_programs_read_the_parquet_files(run: Run) -> None:
    assert run("--out", "rows", "--format", "parquet").exit_code == 0
    rows = ds.dataset("rows", exclude_invalid_files=True).to_table().to_pylist()
    assert sorted((row["gateway"], row["seq"], row["value"]) for row in rows) == [
        ("box-1", 1, 20.0), ("box-1", 2, 21.0), ("box-1", 3, 22.0), ("box-2", 1, 5.0)
    ]  # fmt: skip
    assert run("--out", "triples", "--format", "triples").exit_code == 0
    triples = ds.dataset("triples", exclude_invalid_files=True).to_table().to_pylist()
    assert {f"{row['subject']} {row['predicate']} {row['object']} ." for row in triples} == graph_of(STORED)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--from", "2026-01-02", "--to", "2026-01-02"], "not before"),
        (["--engine", "spark", "--conf", "x"], "not KEY=VALUE"),
        (["--engine", "duckdb", "--conf", "x=y"], "--conf needs --engine spark"),
    ],
)
def test_wrong_usage_is_reported(run: Run, arguments: list[str], reason: str) -> None:
    result = run("--out", "history", *arguments)
    assert (result.exit_code, reason in result.stderr) == (2, True)


def refusal(result: Result) -> HistoryError:
    assert isinstance(result.exception, HistoryError)
    return result.exception


def test_impossible_requests_are_reported(run: Run, tmp_path: Path) -> None:
    assert isinstance(refusal(run("--out", str(tmp_path / "no" / "history.nq"))), OutputRefused)
    assert isinstance(refusal(run("--out", str(tmp_path))), OutputRefused)
    assert isinstance(refusal(run("--out", "x", "--table", str(tmp_path / "none"))), TableRefused)
