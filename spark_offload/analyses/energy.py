"""Energy that street lamps used, from observations of their dimming."""

from __future__ import annotations

from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.last_value import last_values
from spark_offload.analyses.numeric_rows import numeric_rows

DAY = timedelta(days=1)
HOLD = timedelta(hours=25)
"""Validity of an observation. It covers a whole day for lamps that are observed only at dusk and dawn."""


def energy(
    rows: DataFrame,
    power: float | DataFrame,
    *,
    hold: timedelta = HOLD,
    start: datetime | None = None,
    end: datetime | None = None,
) -> DataFrame:
    """Return the energy of the lamps of each street on each day (UTC): rated power times dimming times duration.

    `rows` are the rows of the table whose value is the dimming of a lamp, in percent of full light. An observation is
    valid until the next one of the same lamp, at most for `hold`. After that the power is unknown, as it is for values
    below 0 or above 100. Time before the first observation of a lamp is not counted. The power is assumed to be
    proportional to the dimming. This is nearly true for LEDs, except for the standby power of their drivers.

    `power` is the rated power of each lamp in watts, or a DataFrame with `sensor` (IRI), `watts`, and optionally
    `street` (default: the feature of interest). Lamps that are not in the DataFrame are unknown. `start` and `end`
    limit the time. The state at `start` follows from rows up to `hold` before it. The default of `end` is the time of
    the last observation of all.

    Columns: `street`, `date`, `lamps` (number of lamps, known or unknown), `kwh`, `known` and `unknown` (lamp-hours).
    """
    pieces = last_values(numeric_rows(rows), hold, DAY, start=start, end=end)
    if isinstance(power, DataFrame):
        pieces = _rated(pieces, power)
    else:
        pieces = pieces.withColumn("watts", F.lit(power)).withColumn("street", F.col("feature"))
    hours = F.col("seconds") / F.lit(3600)
    # `between` is null for an unknown value, and `when` without `otherwise` then gives null: the hours count as
    # unknown.
    taken = F.when(F.col("value").between(0, 100), F.col("value") / 100 * F.col("watts") * hours / 1000)
    return (
        pieces.select("street", F.to_date("start").alias("date"), "series", taken.alias("taken"), hours.alias("hours"))
        .groupBy("street", "date")
        .agg(
            F.count_distinct("series").alias("lamps"),
            # SQL's SUM is null, not 0, if it adds up nothing but nulls.
            F.coalesce(F.sum("taken"), F.lit(0.0)).alias("kwh"),
            F.coalesce(F.sum(F.when(F.col("taken").isNotNull(), F.col("hours"))), F.lit(0.0)).alias("known"),
            F.coalesce(F.sum(F.when(F.col("taken").isNull(), F.col("hours"))), F.lit(0.0)).alias("unknown"),
        )
    )


def _rated(pieces: DataFrame, lamps: DataFrame) -> DataFrame:
    street = F.col("street") if "street" in lamps.columns else F.lit(None)
    # The list of lamps is small: a broadcast spares the shuffle of all pieces.
    rated = pieces.join(F.broadcast(lamps), "sensor", "left")
    return rated.withColumn("street", F.coalesce(street, "feature"))
