"""Comparison of places by the same property at the same time."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.numeric_rows import numeric_rows
from spark_offload.analyses.windows import window_of


def places(rows: DataFrame, window: timedelta) -> DataFrame:
    """Return for each window the mean of each place (feature of interest), the mean of all places, and a rank.

    `rows` are rows of the table; those without a feature are skipped. The overall mean is the mean of the places'
    means: each place counts once, whatever its number of sensors. Windows are aligned to UTC, weeks to Mondays.

    Columns: `property`, `unit`, `start` (of the window, a timestamp), `feature`, `mean`, `count` (of observations),
    `overall`, `difference` (mean - overall; means and difference in `unit`), `places` (number of places with
    observations), `rank` (1 for the greatest mean; equal means have equal ranks).
    """
    start = F.timestamp_micros(window_of(F.unix_micros("ts"), window))
    means = (
        numeric_rows(rows)
        .where("feature is not null")
        .groupBy("property", "unit", start.alias("start"), "feature")
        .agg(F.avg("value").alias("mean"), F.count("value").alias("count"))
    )
    together = Window.partitionBy("property", "unit", "start")
    return (
        means.withColumn("overall", F.avg("mean").over(together))
        .withColumn("difference", F.col("mean") - F.col("overall"))
        .withColumn("places", F.count("mean").over(together))
        .withColumn("rank", F.rank().over(together.orderBy(F.desc("mean"))))
    )
