"""The newest observation of each series and property."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  conventional name

from spark_offload.newest_rows import newest, newest_rows
from spark_offload.positions import logged_commits
from spark_offload.table import SCHEMA, location, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def newest_of_series(rows: DataFrame) -> DataFrame:
    """Return one row for each series and property: the newest one.

    `rows` are those of the table, or at least those of `newest`. The series is that of the analyses (`numeric_rows`).
    Of observations with the same time the last one counts, as in `last_values`.
    """
    series = F.coalesce("series", "sensor", "topic", "feature", F.lit(""))
    order = [F.col(name).desc_nulls_last() for name in ("ts", "seq", "gateway", "epoch")]
    place = F.row_number().over(Window.partitionBy(series, F.col("property")).orderBy(*order))
    whole = rows.where("lost IS NULL AND quads IS NULL")
    return whole.withColumn("_place", place).where("_place = 1").select(*SCHEMA.names)


def latest_of(rows: DataFrame) -> DataFrame:
    """Return the newest observation of each series and property of rows of the table."""
    # Most rows are dropped before those of a series are sorted.
    return newest_of_series(newest(rows))


def latest(spark: SparkSession, table: str | os.PathLike[str], version: int | None = None) -> DataFrame:
    """Return the newest observation of each series and property, as rows of the table. Raises `TableRefused`."""
    path = location(spark, table)
    open_table(spark, path, version)  # raises `TableRefused` with the remedy
    if version is None:
        version = int(logged_commits(spark, path, 1)[0]["version"])
    found = newest_rows(spark, path, version)
    return latest_of(open_table(spark, path, version)) if found is None else newest_of_series(found)
