"""Speed-up of the same work on a cluster with two workers, compared with one worker."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from edge.bench.experiment import ExperimentError, steps
from spark_offload import compat
from spark_offload.bench.cluster import Cluster
from spark_offload.bench.figures import HistoryFigure
from spark_offload.bench.ingesting import take_in
from spark_offload.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.executor.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
_PATIENCE: Final = 60.0
"""Time limit for the start of executors (s)."""


def measure(landing: Path, work: Path, rows: int, runs: int) -> list[HistoryFigure]:
    """Measure one worker, then two, with one core each. Raises `ExperimentError`.

    The second worker joins the running session, so driver, jars and files are the same.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    with Cluster(work) as cluster:
        cluster.add_worker()
        spark = session(cluster.master, name="bench", settings=_SETTINGS)
        try:
            for workers in (1, 2):
                if workers > 1:
                    cluster.add_worker()
                _await_executors(spark, workers)
                _once(spark, landing, work, rows)  # warms up, also after the new worker has joined
                for _ in steps(range(runs), f"{workers} of 2 workers"):
                    for name, taken in _once(spark, landing, work, rows).items():
                        seconds[f"{name}_{workers}"].append(taken)
        finally:
            spark.stop()
    figures = []
    for name, meaning in (("ingest", "ingesting"), ("hourly", "hourly mean of each sensor")):
        pairs = zip(seconds[f"{name}_1"], seconds[f"{name}_2"], strict=True)
        figures += [
            HistoryFigure(f"{name}_1_worker_s", f"{meaning}, one worker of one core, seconds", seconds[f"{name}_1"]),
            HistoryFigure(f"{name}_2_workers_s", "… with two", seconds[f"{name}_2"]),
            HistoryFigure(f"{name}_speedup", "… one / two", [one / two for one, two in pairs]),
        ]
    return figures


def _once(spark: SparkSession, landing: Path, work: Path, rows: int) -> dict[str, float]:
    table = work / "table-of-cluster"
    ingested = take_in(spark, landing, table, rows)
    began = time.perf_counter()
    observations = spark.read.format("delta").load(str(table))
    observations.groupBy("sensor", F.date_trunc("hour", "ts")).agg(F.avg("value")).collect()
    return {"ingest": ingested, "hourly": time.perf_counter() - began}


def _await_executors(spark: SparkSession, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if compat.executors(spark) == count:
            return
        time.sleep(0.1)
    raise ExperimentError(f"{count} Spark executors did not come up within {_PATIENCE:g} s")
