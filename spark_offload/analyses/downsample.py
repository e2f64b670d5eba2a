"""Down-sampling: aggregates of each series over windows of time."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.last_value import last_values
from spark_offload.analyses.numeric_rows import OBSERVED, join_on, numeric_rows
from spark_offload.analyses.windows import window_of


def downsample(rows: DataFrame, window: timedelta, *, hold: timedelta | None = None) -> DataFrame:
    """Return minimum, mean, maximum and count of the values of each series in each window with observations.

    `rows` are rows of the table. Windows are aligned to UTC: days begin at midnight, weeks on Mondays. Values of
    different units are not mixed.
    With `hold` the mean is weighted by time: each value counts until the next one, at most for `hold`. The mean of a
    sensor that reports only changes then does not depend on how often it reports.

    Columns: `series`, `property`, `unit`, `start` (of the window, a timestamp), `min`, `mean`, `max` (in that unit),
    `count`.
    """
    observations = numeric_rows(rows)
    start = F.timestamp_micros(window_of(F.unix_micros("ts"), window))
    found = observations.groupBy(*OBSERVED, start.alias("start")).agg(
        F.min("value").alias("min"),
        F.avg("value").alias("mean"),
        F.max("value").alias("max"),
        F.count("value").alias("count"),
    )
    if hold is None:
        return found
    pieces = last_values(observations, hold, window).where("value is not null")
    weighted = pieces.groupBy(*OBSERVED, "start").agg(
        (F.sum(F.col("value") * F.col("seconds")) / F.sum("seconds")).alias("weighted")
    )
    # The last observation of all has a duration of 0 and no weighted mean; its window keeps the plain mean.
    return (
        join_on(found, weighted, (*OBSERVED, "start"), "left")
        .withColumn("mean", F.coalesce("weighted", "mean"))
        .drop("weighted")
    )
