"""Looking after the table: small files become large ones, what no version needs is removed, old schemas grow.

None of it changes what the table says, so the positions stay those of the last ingest (`positions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from spark_offload.commit import alone
from spark_offload.table import evolve, named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION: Final = timedelta(days=7)
"""Files of old versions are kept for so long: who reads one has time to end."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done."""

    columns: list[str]
    """That were added."""
    compacted: int
    """Files that became fewer."""
    into: int
    """So many."""


def maintain(spark: SparkSession, path: str, *, retention: timedelta = RETENTION) -> Maintained:
    """Do all of it. Raises `TableRefused`, `TableBusy`.

    Below a week Delta asks for a setting of one's own (`spark.databricks.delta.retentionDurationCheck.enabled`): a file
    that a job is just writing is no version's either.
    """
    with alone(spark, path):
        columns = evolve(spark, path)
        metrics = spark.sql(f"OPTIMIZE {named(path)}").collect()[0]["metrics"]
        spark.sql(f"VACUUM {named(path)} RETAIN {retention / timedelta(hours=1):g} HOURS").collect()
    return Maintained(columns, metrics["numFilesRemoved"], metrics["numFilesAdded"])
