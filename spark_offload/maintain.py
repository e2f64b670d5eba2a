"""Maintenance of the table: compaction of small files, removal of unused files, migration of old schemas.

Maintenance changes rows only where observations are deleted (`delete.py`). The positions of the last ingestion stay
valid (`positions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spark_offload.commit import alone
from spark_offload.delete import apply_deletions
from spark_offload.table import evolve, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION: Final = timedelta(days=7)
"""Time for which files of old versions are kept, so that queries of these versions can finish."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """Result of a maintenance run."""

    columns: list[str]
    """Columns that were added to the table."""
    compacted: int
    """Number of small files before the compaction."""
    into: int
    """Number of files that replaced them."""
    deleted: int = 0
    """Number of observations that were deleted."""


def maintain(
    spark: SparkSession, path: str, *, retention: timedelta = RETENTION, drop: datetime | None = None, by: str = ""
) -> Maintained:
    """Migrate, compact and clean the table, and apply its deletions. Raises `TableRefused`, `TableBusy`.

    With `drop`, observations before this time are deleted, and such ones are not ingested any more; `by` is the user.

    For a retention below a week, Delta requires `spark.databricks.delta.retentionDurationCheck.enabled=false`: VACUUM
    cannot distinguish an unused file from a file that a running job is about to commit.
    """
    with alone(spark, path):
        columns = evolve(spark, path)
        deleted = apply_deletions(spark, path, drop, by)
        metrics = spark.sql(f"OPTIMIZE {named(path)}").collect()[0]["metrics"]
        spark.sql(f"VACUUM {named(path)} RETAIN {retention / timedelta(hours=1):g} HOURS").collect()
    return Maintained(columns, metrics["numFilesRemoved"], metrics["numFilesAdded"], deleted)
