"""Maintenance of the table: compaction of small files, removal of unused files, migration of old schemas.

Maintenance changes rows only where observations are deleted (`delete.py`). The positions of the last ingestion stay
valid (`positions.py`). It works in steps, between which an ingester can commit.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spark_offload import newest_rows
from spark_offload.commit import WAIT, alone, append, maintaining
from spark_offload.delete import apply_deletions
from spark_offload.local_rows import local_frame
from spark_offload.positions import place, state, totals_note
from spark_offload.session import changed_settings
from spark_offload.table import PARTITION, SCHEMA, evolve, location, named, open_table
from spark_offload.totals import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION: Final = timedelta(days=7)
"""Time for which files of old versions are kept, so that queries of these versions can finish."""
_SHORT: Final = timedelta(days=1)
"""Retention below which an ingester must not write while unused files are removed: they could be its own."""
_FILES: Final = 500
"""Approximate number of files that a step compacts."""
_DAY: Final = re.compile(rf"/{PARTITION}=(\d{{4,}}-\d\d-\d\d)/")
_UNRECORDED: Final = {"spark.databricks.delta.vacuum.logging.enabled": "false"}
"""Setting with which VACUUM makes no commits, so that it needs no lock."""


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
    problems: list[str] = field(default_factory=list)
    """Reasons why the newest rows could not be kept."""


def maintain(
    spark: SparkSession,
    table: str | os.PathLike[str],
    *,
    retention: timedelta = RETENTION,
    drop: datetime | None = None,
    by: str = "",
    wait: float = WAIT,
) -> Maintained:
    """Migrate, compact and clean the table, and apply its deletions. Raises `TableRefused`, `TableBusy`.

    With `drop`, observations before this time are deleted, and such ones are not ingested any more; `by` is the user.
    `wait` is the time in seconds to wait for an ingester before each step.

    For a retention below a week, Delta requires `spark.databricks.delta.retentionDurationCheck.enabled=false`: VACUUM
    cannot distinguish an unused file from a file that a running job is about to commit.
    """
    path = location(spark, table)
    with maintaining(spark, path):
        with alone(spark, path, wait):
            columns = evolve(spark, path)
            deleted = apply_deletions(spark, path, drop, by)
        problems = newest_rows.complete(spark, path, wait)
        compacted = into = 0
        for first, last in steps(open_table(spark, path).inputFiles()):
            with alone(spark, path, wait):
                # A compaction would merge the rows that an ingester has added meanwhile with older ones.
                problems += newest_rows.renew(spark, path, place(spark, path).version, soon=True)
                days = f"{PARTITION} BETWEEN DATE'{first}' AND DATE'{last}'"
                metrics = spark.sql(f"OPTIMIZE {named(path)} WHERE {days}").collect()[0]["metrics"]
            compacted, into = compacted + metrics["numFilesRemoved"], into + metrics["numFilesAdded"]
        _remove_unused(spark, path, retention, wait)
        _complete_totals(spark, path, wait)
    return Maintained(columns, compacted, into, deleted, list(dict.fromkeys(problems)))


def steps(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the first and last day of each step of a compaction. `files` are those of the table."""
    by_day = Counter(found[1] for file in files if (found := _DAY.search(file)))
    first, last, waiting = "", "", 0
    for day, count in sorted(by_day.items()):
        if count < 2:  # a single file cannot be merged
            continue
        if waiting and waiting + count > _FILES:
            yield first, last
            waiting = 0
        first, last, waiting = first if waiting else day, day, waiting + count
    if waiting:
        yield first, last


def _remove_unused(spark: SparkSession, path: str, retention: timedelta, wait: float) -> None:
    vacuum = f"VACUUM {named(path)} RETAIN {retention / timedelta(hours=1):g} HOURS"
    with changed_settings(spark, _UNRECORDED):
        if retention >= _SHORT:
            spark.sql(vacuum).collect()
        else:
            with alone(spark, path, wait):
                spark.sql(vacuum).collect()


def _complete_totals(spark: SparkSession, path: str, wait: float) -> None:
    """Count the rows if the log does not have the totals, and store them with a commit without rows."""
    if state(spark, path).totals is not None:
        return
    with alone(spark, path, wait):
        version, positions, _ = state(spark, path)
        totals = counted(open_table(spark, path, version))
        nothing = local_frame(spark, [], SCHEMA).coalesce(1)
        append(spark, path, nothing, version, positions, totals_note(version, totals))
