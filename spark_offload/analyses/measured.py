"""Rows with a number, as the analyses look at them; and choosing some of the table's rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that everybody gives it

OBSERVED: Final = ("series", "property", "unit")
"""What belongs together: one thing, measured in one unit."""


def measured(rows: DataFrame) -> DataFrame:
    """Rows of the table that have a number, NaN and infinity left out.

    Columns: `series` (the observation in the live graph of which they are versions, else the sensor, the topic, the
    feature: never null), `sensor` (else the series), `feature`, `property`, `unit`, `ts`, `seq`, `value`.
    A sensor that measures two things, or one thing twice, is more than one series.
    """
    series = F.coalesce("series", "sensor", "topic", "feature", F.lit(""))
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
    """The rows from `start` on and before `end`, of any of these sensors (or series) and of any of these properties.

    Whole partitions are passed over where their date says so.
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
    """When the last of them was made, not counting what claims to be from the future; None: there is none."""
    found: datetime | None = rows.where(F.col("ts") <= F.current_timestamp()).agg(F.max("ts")).collect()[0][0]
    return None if found is None else found.astimezone(UTC)


def beside(left: DataFrame, right: DataFrame, columns: Sequence[str], how: str = "inner") -> DataFrame:
    """A join on these columns, null being equal to null: all of the left's columns, and the right's others."""
    renamed = right.withColumnsRenamed({name: f"_{name}" for name in columns})
    together = reduce(Column.__and__, [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in columns])
    return left.join(renamed, together, how).drop(*(f"_{name}" for name in columns))
