"""Duration of the ingestion of segments, compared with a copy of the same rows from Parquet to Parquet."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.bench.experiment import ExperimentError, steps
from spark_offload.bench.figures import HistoryFigure
from spark_offload.ingest import ingest
from spark_offload.table import make_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO: Final = 1.25
MIB: Final = 20.0
"""Goal for the size of a million observations in the table (MiB)."""


def measure(spark: SparkSession, landing: Path, work: Path, rows: int, runs: int) -> list[HistoryFigure]:
    """Measure both alternately after a warm-up. The order changes between runs. The table stays in `work/table`."""
    source, table, copy = work / "source", work / "table", work / "copy"
    take_in(spark, landing, table, rows)
    taken = spark.read.format("delta").load(str(table))
    # Spark reads a small file in one task, so the copy needs at least one file for each core.
    taken.repartition(spark.sparkContext.defaultParallelism).write.parquet(str(source))
    sides = {
        "copy": lambda: _copy(spark, source, copy),
        "ingest": lambda: take_in(spark, landing, table, rows),
    }
    # A warm-up. The ingestion above was that of the other side.
    sides["copy"]()
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in steps(range(runs), "ingest"):
        for name in sorted(sides, reverse=bool(run % 2)):
            seconds[name].append(sides[name]())
    ratios = [mine / plain for mine, plain in zip(seconds["ingest"], seconds["copy"], strict=True)]
    per_million = 1e6 / rows / 2**20
    return [
        HistoryFigure(
            "ingest_rows_per_s", "observations ingested a second", [rows / taken for taken in seconds["ingest"]]
        ),
        HistoryFigure(
            "copy_rows_per_s", "the same rows from Parquet to Parquet", [rows / taken for taken in seconds["copy"]]
        ),
        HistoryFigure("ingest_ratio", "time to ingest / to copy", ratios, RATIO),
        HistoryFigure("table_mib", "MiB a million observations take in the table", [_size(table) * per_million], MIB),
        HistoryFigure("segments_mib", "and as segments", [_size(landing) * per_million]),
    ]


def take_in(spark: SparkSession, landing: Path, table: Path, rows: int) -> float:
    """Ingest a landing zone into an empty table and return the duration (s).

    Raises `ExperimentError` if the table does not have `rows` rows afterwards.

    The ingestion writes acknowledgements into the landing zone, so each run uses a copy of it (hard links).
    """
    shutil.rmtree(table, ignore_errors=True)
    own = table.with_name("landing-of-this-run")
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(landing, own, copy_function=os.link)
    make_table(spark, str(table))
    began = time.perf_counter()
    ingest(spark, own, table)
    seconds = time.perf_counter() - began
    if (found := spark.read.format("delta").load(str(table)).count()) != rows:
        raise ExperimentError(f"{rows:,} observations were to be ingested, the table has {found:,}")
    return seconds


def _copy(spark: SparkSession, source: Path, copy: Path) -> float:
    shutil.rmtree(copy, ignore_errors=True)
    began = time.perf_counter()
    spark.read.parquet(str(source)).write.partitionBy("date").parquet(str(copy))
    return time.perf_counter() - began


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
