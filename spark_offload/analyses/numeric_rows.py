"""Numeric observations as input of the analyses, and selection of table rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  conventional name

OBSERVED: Final = ("series", "property", "unit")
"""Key of comparable values: one quantity in one unit."""


def numeric_rows(rows: DataFrame) -> DataFrame:
    """Return the table rows with a finite numeric value.

    Columns: `series` (the observation in the live graph of which the row is a version; without one the sensor, the
    topic or the feature; never null), `sensor` (default: the series), `feature`, `property`, `unit`, `ts`, `seq`,
    `value`. A sensor that measures several quantities, or one quantity several times, has several series.
    """
    series = F.coalesce("series", "sensor", "topic", "feature", F.lit(""))
    # Spark orders NaN above infinity, so this condition excludes both.
    return rows.where(F.abs("value") < float("inf")).select(
        series.alias("series"),
        F.coalesce("sensor", series).alias("sensor"),
        *("feature", "property", "unit", "ts", "seq", "value"),
    )


def chosen(
    rows: DataFrame,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    sensors: Sequence[str] = (),
    properties: Sequence[str] = (),
) -> DataFrame:
    """Select the rows from `start` until before `end`, of any of these sensors or series, and any of these properties.

    The additional conditions on `date` let Spark skip whole partitions.
    """
    if start is not None:
        rows = rows.where((F.col("ts") >= F.lit(start)) & (F.col("date") >= F.lit(start.astimezone(UTC).date())))
    if end is not None:
        rows = rows.where((F.col("ts") < F.lit(end)) & (F.col("date") <= F.lit(end.astimezone(UTC).date())))
    if sensors:
        rows = rows.where(F.col("sensor").isin(*sensors) | F.col("series").isin(*sensors))
    if properties:
        rows = rows.where(F.col("property").isin(*properties))
    return rows


def latest(rows: DataFrame) -> datetime | None:
    """Return the time of the last row, ignoring times in the future (wrong clocks); None without rows."""
    past = rows.where(F.col("ts") <= F.current_timestamp())
    found: int | None = past.agg(F.unix_micros(F.max("ts"))).collect()[0][0]
    return None if found is None else utc(found)


def utc(micros: int) -> datetime:
    """Return a time from its microseconds since 1970.

    Spark Connect returns timestamps in local time without their zone, which are ambiguous when daylight saving ends.
    """
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def join_on(left: DataFrame, right: DataFrame, columns: Sequence[str], how: str = "inner") -> DataFrame:
    """Join on columns, where null equals null. Returns the columns of `left`, and the other columns of `right`."""
    renamed = right.withColumnsRenamed({name: f"_{name}" for name in columns})
    together = reduce(Column.__and__, [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in columns])
    return left.join(renamed, together, how).drop(*(f"_{name}" for name in columns))
