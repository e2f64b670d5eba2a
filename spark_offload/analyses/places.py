"""Comparison across places: the same property at the same time, here and elsewhere."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.measured import measured
from spark_offload.analyses.windows import window_of


def places(rows: DataFrame, window: timedelta) -> DataFrame:
    """The mean of each place (feature of interest) in each window, beside that of all places, and its rank.

    `rows` are those of the table; those that name no feature are passed over. The overall mean is that of the places'
    means: each place counts once, however many sensors it has. Windows are aligned to UTC, weeks to Mondays.

    Columns: `property`, `unit`, `start` (of the window, a timestamp), `feature`, `mean`, `count` (of observations),
    `overall`, `difference` (mean - overall; all in that unit), `places` (how many had any), `rank` (1: the greatest
    mean; equal means have equal ranks).
    """
    start = F.timestamp_micros(window_of(F.unix_micros("ts"), window))
    means = (
        measured(rows)
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
