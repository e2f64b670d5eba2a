"""Gaps and silent sensors: the absence of observations, detected in stored data (event negation)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.numeric_rows import join_on, latest, numeric_rows
from spark_offload.analyses.windows import micros

FACTOR: Final = 5.0
"""Usual intervals without an observation after which a series has a gap."""

_SERIES: Final = ("series", "property")


def gaps(
    rows: DataFrame, *, longer: timedelta | None = None, factor: float = FACTOR, end: datetime | None = None
) -> DataFrame:
    """Return the times without observations longer than `longer`, or else than `factor` usual intervals of the series.

    `rows` are rows of the table. The usual interval is the median of the intervals between observations, with a rank
    error of 0.1 percent. A series with a single observation has no usual interval, so only `longer` finds its gap.
    `end` is the time until which observations are expected, by default that of the last observation of all series. A
    series without observations until `end` has an open gap. A sensor whose value is stored only when it changes may be
    silent and work well.

    Columns: `series`, `property`, `start` (last observation before the gap), `end` (first observation after it, or null
    for an open gap), `seconds` (of an open gap: until the parameter `end`), `usual` (interval in seconds, or null), and
    `missed` (number of usual intervals that ended without an observation; null if `usual` is null).
    """
    observations = numeric_rows(rows)
    stop = end or latest(rows)
    ordered = Window.partitionBy(*_SERIES).orderBy("ts")
    intervals = (
        # Later times come from wrong clocks if `stop` is the latest time, and are of no interest otherwise.
        observations.where(F.col("ts") <= F.lit(stop))
        .select(*_SERIES, F.col("ts").alias("start"), F.lead("ts").over(ordered).alias("end"))
        .withColumn("seconds", (F.unix_micros(F.coalesce("end", F.lit(stop))) - F.unix_micros("start")) / F.lit(1e6))
    )
    # The median is approximate: an exact one holds all distinct intervals in memory, and nearly all are distinct.
    usual = (
        # Observations of the same timestamp would make the usual interval too short.
        intervals.where(F.col("end").isNotNull() & (F.col("seconds") > 0))
        .groupBy(*_SERIES)
        .agg(F.percentile_approx("seconds", 0.5, 1000).alias("usual"))
    )
    found = join_on(intervals, usual, _SERIES, "left")
    allowed = F.col("usual") * F.lit(factor) if longer is None else F.lit(micros(longer) / 1e6)
    return found.where(F.col("seconds") > allowed).withColumn(
        "missed", (F.ceil(F.col("seconds") / F.col("usual")) - F.lit(1)).cast("long")
    )
