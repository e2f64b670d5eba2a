"""Down-sampling: few numbers for each window of time and series."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.held import held
from spark_offload.analyses.measured import OBSERVED, beside, measured
from spark_offload.analyses.windows import window_of


def downsample(rows: DataFrame, window: timedelta, *, hold: timedelta | None = None) -> DataFrame:
    """Least, mean and greatest value, and how many there are, for each window and series in which there is any.

    `rows` are those of the table. Windows are aligned to UTC: days begin at midnight, weeks on Mondays. Values of
    different units are not mixed.
    With `hold` the mean is weighted by time: each value counts for as long as it was the last one, at the longest for
    `hold`; so sensors that report changes only are not judged by how often they report.

    Columns: `series`, `property`, `unit`, `start` (of the window, a timestamp), `min`, `mean`, `max` (in that unit),
    `count`.
    """
    observations = measured(rows)
    start = F.timestamp_micros(window_of(F.unix_micros("ts"), window))
    found = observations.groupBy(*OBSERVED, start.alias("start")).agg(
        F.min("value").alias("min"),
        F.avg("value").alias("mean"),
        F.max("value").alias("max"),
        F.count("value").alias("count"),
    )
    if hold is None:
        return found
    pieces = held(observations, hold, window).where("value is not null")
    weighted = pieces.groupBy(*OBSERVED, "start").agg(
        (F.sum(F.col("value") * F.col("seconds")) / F.sum("seconds")).alias("weighted")
    )
    # A single observation at the very end is held for no time at all: it keeps its own mean.
    return (
        beside(found, weighted, (*OBSERVED, "start"), "left")
        .withColumn("mean", F.coalesce("weighted", "mean"))
        .drop("weighted")
    )
