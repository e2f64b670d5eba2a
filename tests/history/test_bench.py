"""The benchmarks: segments look like those of gateways, the queries have equal answers, and goals are reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge.outbox.segment import MANIFEST, ROWS, SegmentManifest, unpacked

pytest.importorskip("pyspark")

from spark_offload.bench import asking, ingesting
from spark_offload.bench.figures import HistoryFigure, to_json, to_text
from spark_offload.bench.observations import SEGMENT, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READINGS = 60_100
"""Two segments of each gateway, the second one short."""


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "landing"
    fill(folder, READINGS)
    return folder


def test_segments_are_whole_and_leave_nothing_out(landing: Path) -> None:
    found: dict[str, list[int]] = {}
    for path in sorted(landing.rglob(f"[!.]*{MANIFEST}")):
        manifest = SegmentManifest.from_json(path.read_bytes())
        rows = path.with_name(manifest.stem + ROWS).read_bytes()
        manifest.check(rows)
        read = list(unpacked(rows))
        assert {context for _, context, _ in read} == set(manifest.contexts)
        assert (manifest.start, manifest.end) == (min(row[2].time for row in read), max(row[2].time for row in read))
        found.setdefault(manifest.folder, []).extend(seq for seq, _, _ in read)
    assert len(found) == 5
    assert all(numbers == list(range(1, READINGS // 5 + 1)) for numbers in found.values())
    assert READINGS // 5 > SEGMENT


def test_segments_are_always_the_same(landing: Path, tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    fill(tmp_path, READINGS)
    assert digest(tmp_path) == digest(landing)


@pytest.mark.parametrize(
    ("values", "goal", "met"), [([1.3, 1.1, 1.2], 1.2, True), ([1.3, 1.21, 1.0], 1.2, False), ([1.0], None, None)]
)
def test_a_goal_is_met_by_the_median(values: Sequence[float], goal: float | None, met: bool | None) -> None:
    figure = HistoryFigure("ratio", "a ratio", values, goal)
    reported = json.loads(to_json([figure]))["ratio"]
    assert (reported["met"], reported["goal"], reported["values"]) == (met, goal, values)
    _, line = to_text([figure]).splitlines()
    assert (" yes " in line, " no " in line) == (met is True, met is False)


@pytest.mark.timeout(240)
def test_ingestion_and_queries_are_measured(spark: SparkSession, tmp_path: Path) -> None:
    """The run fails if rows are missing in the table, or if SPARQL answers differ from those computed by hand."""
    rows = 10_000
    fill(tmp_path / "landing", rows)
    figures = {figure.name: figure for figure in ingesting.measure(spark, tmp_path / "landing", tmp_path, rows, 1)}
    ratio = figures["copy_rows_per_s"].median / figures["ingest_rows_per_s"].median
    assert figures["ingest_ratio"].median == pytest.approx(ratio)
    assert all(figure.median > 0 for figure in figures.values())
    figures = {figure.name: figure for figure in asking.measure(spark, tmp_path / "table", rows, 1)}
    assert {name for name, figure in figures.items() if figure.goal} == {
        f"{question}_ratio" for question in ("window", "hourly", "highest", "never", "optional", "distinct")
    }
