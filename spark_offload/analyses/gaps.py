"""Gaps and silent sensors: that nothing was observed, told after the fact (event negation)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.measured import beside, latest, measured
from spark_offload.analyses.windows import micros

FACTOR: Final = 5.0
"""Of its usual intervals a sensor may be late for so many."""

_SERIES: Final = ("series", "property")


def gaps(
    rows: DataFrame, *, longer: timedelta | None = None, factor: float = FACTOR, end: datetime | None = None
) -> DataFrame:
    """When a series had no observation for longer than `longer`, or else than `factor` times its usual interval.

    `rows` are those of the table. The usual interval is the median of the intervals between observations, to a tenth of
    a percent of their ranks; a series of a single observation has none, so only `longer` finds its silence.
    `end` is until when observations are expected, by default the last one of all series: who has said nothing since
    has a gap that is still open. A sensor that is stored only when its value changes may be silent and well.

    Columns: `series`, `property`, `start` (the last observation before), `end` (the first one after; null: silent
    still), `seconds` (until `end` as given, if silent still), `usual` (interval, in seconds; may be
    null), and `missed` (how many usual intervals ended without an observation; null with it).
    """
    observations = measured(rows)
    stop = end or latest(rows)
    ordered = Window.partitionBy(*_SERIES).orderBy("ts")
    intervals = (
        observations.where(F.col("ts") <= F.lit(stop))
        .select(*_SERIES, F.col("ts").alias("start"), F.lead("ts").over(ordered).alias("end"))
        .withColumn("seconds", (F.unix_micros(F.coalesce("end", F.lit(stop))) - F.unix_micros("start")) / F.lit(1e6))
    )
    # An approximate median: an exact one keeps every different interval in memory, and they nearly all differ.
    usual = (
        intervals.where(F.col("end").isNotNull() & (F.col("seconds") > 0))
        .groupBy(*_SERIES)
        .agg(F.percentile_approx("seconds", 0.5, 1000).alias("usual"))
    )
    found = beside(intervals, usual, _SERIES, "left")
    allowed = F.col("usual") * F.lit(factor) if longer is None else F.lit(micros(longer) / 1e6)
    return found.where(F.col("seconds") > allowed).withColumn(
        "missed", (F.ceil(F.col("seconds") / F.col("usual")) - F.lit(1)).cast("long")
    )
