"""Values between observations: each value is valid until the next one of its series, for a limited time."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.numeric_rows import latest
from spark_offload.analyses.windows import micros, window_of


def last_values(
    observations: DataFrame,
    hold: timedelta,
    window: timedelta,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Split the time of each series, from its first observation to `end`, into pieces that lie in one window each.

    `observations` come from `numeric_rows`. A value is valid until the next observation of the same series and
    property, at most for `hold`; after that the value of the piece is null (unknown). Of observations with the same
    timestamp only the last one counts. `start` and `end` limit the pieces. The default of `end` is the time of the last
    observation.

    Columns: those of `numeric_rows`, `start` (of the window, a timestamp), and `seconds` (a double above 0).
    """
    stop = end or latest(observations)
    if stop is None:  # without observations, any time gives an empty result
        stop = datetime.fromtimestamp(0).astimezone()
    last = F.unix_micros(F.lit(stop))
    ordered = Window.partitionBy("series", "property").orderBy("ts", "seq")
    spans = (
        observations.withColumn("_begin", F.unix_micros("ts"))
        .withColumn("_next", F.least(F.coalesce(F.lead("_begin").over(ordered), last), last))
        .withColumn("_until", F.least("_next", F.col("_begin") + F.lit(micros(hold))))
    )
    known = F.struct(F.col("_begin").alias("begin"), F.col("_until").alias("end"), F.col("value").alias("value"))
    unknown = F.struct(
        F.col("_until").alias("begin"), F.col("_next").alias("end"), F.lit(None).cast("double").alias("value")
    )
    pieces = spans.select(
        *(name for name in observations.columns if name != "value"), F.explode(F.array(known, unknown)).alias("_piece")
    ).select("*", "_piece.begin", "_piece.end", "_piece.value")
    if start is not None:
        pieces = pieces.withColumn("begin", F.greatest("begin", F.unix_micros(F.lit(start))))
    # Of several observations with one timestamp, only the last has a duration. This removes the others.
    pieces = pieces.where(F.col("begin") < F.col("end"))
    length = F.lit(micros(window))
    # `sequence` includes its end, and the intervals here do not.
    starts = F.sequence(window_of(F.col("begin"), window), F.col("end") - F.lit(1), length)
    cut = pieces.withColumn("_window", F.explode(starts))
    seconds = F.least("end", F.col("_window") + length) - F.greatest("begin", "_window")
    return cut.select(
        *observations.columns,
        F.timestamp_micros("_window").alias("start"),
        (seconds / F.lit(1e6)).alias("seconds"),
    )
