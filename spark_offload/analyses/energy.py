"""Energy of streets, from the dimming of their lamps."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.held import held
from spark_offload.analyses.measured import measured

DAY = timedelta(days=1)
HOLD = timedelta(hours=25)
"""A lamp is taken to be as it was for so long: one that is told at dusk and at dawn only is known all day."""


def energy(
    rows: DataFrame,
    power: float | DataFrame,
    *,
    hold: timedelta = HOLD,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """What the lamps of each street took on each day (UTC), rated power times dimming times time.

    `rows` are those of the table whose value is a lamp's dimming in percent of full light. A lamp stays as it was last
    seen, at the longest for `hold`; then what it takes is unknown, and so it is while its value is no percentage
    (below 0, above 100), and before its first observation nothing is told of it. Power is taken to be proportional to
    dimming, which holds for LEDs nearly, but for what their drivers take when dark.
    `power` is that of each lamp in watts, or a DataFrame: `sensor` (its IRI), `watts`, and `street` where that is not
    the feature of interest; a lamp that is not in it is unknown. `start` and `end` cut the time off; to know how lamps
    were at `start`, give rows from `hold` before it. `end` is by default the last observation of all.

    Columns: `street`, `date`, `lamps` (how many were known or unknown then), `kwh`, `known` and `unknown` (lamp-hours).
    """
    pieces = held(measured(rows), hold, DAY, start=start, end=end)
    if isinstance(power, DataFrame):
        pieces = _rated(pieces, power)
    else:
        pieces = pieces.withColumn("watts", F.lit(power)).withColumn("street", F.col("feature"))
    hours = F.col("seconds") / F.lit(3600)
    taken = F.when(F.col("value").between(0, 100), F.col("value") / 100 * F.col("watts") * hours / 1000)
    return (
        pieces.select("street", F.to_date("start").alias("date"), "series", taken.alias("taken"), hours.alias("hours"))
        .groupBy("street", "date")
        .agg(
            F.count_distinct("series").alias("lamps"),
            F.coalesce(F.sum("taken"), F.lit(0.0)).alias("kwh"),
            F.coalesce(F.sum(F.when(F.col("taken").isNotNull(), F.col("hours"))), F.lit(0.0)).alias("known"),
            F.coalesce(F.sum(F.when(F.col("taken").isNull(), F.col("hours"))), F.lit(0.0)).alias("unknown"),
        )
    )


def _rated(pieces: DataFrame, lamps: DataFrame) -> DataFrame:
    street = F.col("street") if "street" in lamps.columns else F.lit(None)
    rated = pieces.join(F.broadcast(lamps), "sensor", "left")
    return rated.withColumn("street", F.coalesce(street, "feature"))
