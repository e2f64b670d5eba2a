"""Execution of the measurements one after the other, in a temporary directory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_offload.bench import asking, ingesting, scaling
from spark_offload.bench.figures import HistoryFigure
from spark_offload.bench.observations import fill
from spark_offload.session import session


def measure(parts: Collection[str], rows: int, runs: int) -> list[HistoryFigure]:
    """Run the chosen parts of "ingest", "questions" and "scaling". Raises `ExperimentError`, `HistoryError`."""
    figures: list[HistoryFigure] = []
    with TemporaryDirectory(prefix="edge-history-bench-") as directory:
        work = Path(directory)
        landing = work / "landing"
        fill(landing, rows)
        if "ingest" in parts or "questions" in parts:
            spark = session(name="bench", settings={"spark.sql.warehouse.dir": str(work / "warehouse")})
            try:
                if "ingest" in parts:
                    figures += ingesting.measure(spark, landing, work, rows, runs)
                else:  # the questions need a filled table
                    ingesting.take_in(spark, landing, work / "table", rows)
                if "questions" in parts:
                    figures += asking.measure(spark, work / "table", rows, runs)
            finally:
                spark.stop()
        # This part starts its own session on a cluster, for which the session above must have stopped.
        if "scaling" in parts:
            figures += scaling.measure(landing, work, rows, runs)
    return figures
