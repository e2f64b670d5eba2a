"""`edge-history analyse`: options, formats, plots, and messages for wrong usage."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from spark_offload.cli import edge_history
from spark_offload.errors import HistoryError
from tests.history.history_data import EX, HOUR, MIDNIGHT, numbered, readings, write

pytest.importorskip("matplotlib")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Result]

COMMANDS = ("anomalies", "downsample", "energy", "gaps", "places")


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write three days of two thermometers; one is silent for ten hours, one ends early, one has an outlier."""
    first = [*(18 + hour % 4 for hour in range(71)), 90]
    stored = [
        *readings("a1", first, every=HOUR),
        *readings("b1", [20 + hour % 3 for hour in range(20)], every=HOUR),
        *readings("b1", [20 + hour % 3 for hour in range(30)], start=MIDNIGHT + 30 * HOUR, every=HOUR),
    ]
    return write(spark, tmp_path_factory.mktemp("analysed") / "history", numbered(stored))


@pytest.fixture(params=["spark", "duckdb"])
def run(spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Run:
    """Run the command with each engine: with DuckDB, and in the Spark session of the tests."""
    monkeypatch.setattr("spark_offload.cli.spark.session", lambda *_, **__: spark)

    def run(name: str, *options: object) -> Result:
        arguments = ["analyse", name, "--table", table, "--engine", request.param, *map(str, options)]
        return CliRunner().invoke(edge_history, arguments)

    return run


def test_analyse_without_a_name_lists_the_analyses() -> None:
    listed = CliRunner().invoke(edge_history, ["analyse"])
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name: str) -> None:
    assert f"edge-history analyse {name} --table" in CliRunner().invoke(edge_history, ["analyse", name, "-h"]).stdout


def test_table_format_has_aligned_columns(run: Run) -> None:
    result = run("gaps")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines == [
        ["series", "property", "start", "end", "seconds", "usual", "missed"],
        ["observation/b1", "temperature", "2026-01-01T19:00:00Z", "2026-01-02T06:00:00Z", "39600", "3600", "10"],
        ["observation/b1", "temperature", "2026-01-03T11:00:00Z", "43200", "3600", "11"],
        ["(2", "rows)"],
    ]


def test_silence_is_measured_against_the_whole_history(run: Run) -> None:
    alone = run("gaps", "--sensor", f"{EX}sensor/b1", "--format", "json")
    assert [gap["end"] for gap in json.loads(alone.stdout)] == ["2026-01-02T06:00:00Z", None]
    until = run("gaps", "--to", "2026-01-03T12:00:00+01:00", "--format", "json")
    assert [gap["end"] for gap in json.loads(until.stdout)] == ["2026-01-02T06:00:00Z"]


def test_all_formats_have_the_same_rows(run: Run, tmp_path: Path) -> None:
    options = ("--window", "1d", "--from", "2026-01-02", "--to", "2026-01-03")
    shown = csv.DictReader(run("downsample", *options, "--format", "csv").stdout.splitlines())
    rows = [(row["series"], row["start"], float(row["mean"]), int(row["count"])) for row in shown]
    assert rows == [
        (f"{EX}observation/a1", "2026-01-02T00:00:00Z", 19.5, 24),
        (f"{EX}observation/b1", "2026-01-02T00:00:00Z", 21.0, 18),
    ]
    reported = json.loads(run("downsample", *options, "--format", "json").stdout)
    assert [(row["series"], row["start"], row["mean"], row["count"]) for row in reported] == rows
    for name in ("days.csv", "days.json", "days.parquet"):
        written = run("downsample", *options, "--out", tmp_path / name)
        assert (written.exit_code, written.stdout) == (0, "")
    assert json.loads((tmp_path / "days.json").read_text()) == reported
    assert len((tmp_path / "days.csv").read_text().splitlines()) == 3
    kept = pd.read_parquet(tmp_path / "days.parquet")
    assert list(kept["mean"]) == [19.5, 21.0]
    again = run("downsample", *options, "--out", tmp_path / "days.parquet")
    assert isinstance(again.exception, HistoryError)


@pytest.mark.parametrize(
    ("name", "options", "texts"),
    [
        ("downsample", ["--window", "6h", "--hold", "2h"], ["a1", "b1", "temperature (DegreeCelsius)"]),
        ("gaps", [], ["observation/b1", "open gap"]),
        ("anomalies", ["--least", "3", "--threshold", "2"], ["observation/a1", "usual"]),
        ("places", ["--window", "1d"], ["a", "b", "difference"]),
        ("energy", ["--property", f"{EX}temperature", "--power", "50", "--hold", "1h"], ["kWh", "lamp-hours unknown"]),
    ],
)
def test_plots(run: Run, tmp_path: Path, name: str, options: list[str], texts: list[str]) -> None:
    drawn = tmp_path / f"{name}.svg"
    result = run(name, *options, "--plot", drawn)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    svg = drawn.read_text()
    assert [text for text in ("UTC", *texts) if f"<!-- {text} -->" not in svg] == []


def test_plot_without_rows_is_written(run: Run, tmp_path: Path) -> None:
    result = run("anomalies", "--to", "2020-01-01", "--plot", tmp_path / "none.png", "--format", "table")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("(0 rows)\n")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")


def test_lamps_from_a_file(run: Run, tmp_path: Path) -> None:
    lamps = tmp_path / "lamps.csv"
    lamps.write_text(f"sensor,watts,street\n{EX}sensor/a1,1000,{EX}Main\n{EX}sensor/b1,1000,\n")
    options = ("--property", f"{EX}temperature", "--lamps", lamps, "--to", "2026-01-01T04:00:00", "--format", "json")
    reported = json.loads(run("energy", *options).stdout)
    assert [(row["street"], row["date"], row["lamps"]) for row in reported] == [
        (f"{EX}Main", "2026-01-01", 1),
        (f"{EX}place/b", "2026-01-01", 1),
    ]
    assert [row["kwh"] for row in reported] == pytest.approx([0.18 + 0.19 + 0.20 + 0.21, 0.20 + 0.21 + 0.22 + 0.20])
    for text, fault in (("lamp,watts\n", "no columns"), ("sensor,watts\na,many\n", "line 2: watts is not a number")):
        lamps.write_text(text)
        assert fault in str(run("energy", *options).exception)
    lamps.write_bytes("sensor,watts\nVia Forlì,1\n".encode("latin-1"))
    assert "is not UTF-8" in str(run("energy", *options).exception)


def test_energy_uses_values_before_the_period(run: Run) -> None:
    """The state of a lamp at --from follows from its earlier values."""
    start = ("--from", "2026-01-02T00:30:00", "--to", "2026-01-02T01:00:00", "--sensor", f"{EX}sensor/a1")
    options = ("--property", f"{EX}temperature", "--power", "1000", *start, "--format", "json")
    (reported,) = json.loads(run("energy", *options).stdout)
    assert (reported["kwh"], reported["known"], reported["unknown"]) == (pytest.approx(0.09), 0.5, 0.0)


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("downsample", ["--window", "0h"], "is not a duration"),
        ("downsample", ["--from", "yesterday"], "is not a time"),
        ("downsample", ["--from", "2026-02-01", "--to", "2026-01-01"], "--from is not before --to"),
        ("gaps", ["--format", "parquet"], "needs --out"),
        ("gaps", ["--plot", "plot.gif"], ".png, .svg or .pdf"),
        ("anomalies", ["--zone", "Mars/Olympus"], "is not a time zone"),
        ("energy", ["--power", "60"], "--property"),
        ("energy", ["--property", "x"], "--power, or --lamps"),
    ],
)
def test_wrong_usage_is_reported(name: str, options: list[str], fault: str) -> None:
    """Checked before Spark starts."""
    result = CliRunner().invoke(edge_history, ["analyse", name, "--table", "nowhere", *options])
    assert result.exit_code == 2
    assert fault in result.output


def test_an_unwritable_output_is_reported(run: Run, tmp_path: Path) -> None:
    away = tmp_path / "away" / "gaps"
    assert "cannot be written" in str(run("gaps", "--out", f"{away}.csv").exception)
    assert "cannot be written" in str(run("gaps", "--plot", f"{away}.png").exception)
