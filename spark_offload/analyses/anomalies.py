"""Anomalies: values far from the usual values of their series at the same hour of the day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.numeric_rows import OBSERVED, join_on, numeric_rows

THRESHOLD: Final = 3.5
"""Robust z-score above which a value is an anomaly (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""
LEAST: Final = 10
"""Minimum number of observations for a meaningful median."""

MAD: Final = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""
MEAN_DEVIATION: Final = 1.2533
"""Ratio of the standard deviation of a normal distribution to its mean absolute deviation."""

_GROUP: Final = (*OBSERVED, "hour")


def anomalies(rows: DataFrame, *, threshold: float = THRESHOLD, least: int = LEAST, zone: str = "UTC") -> DataFrame:
    """Return the observations whose robust z-score within their series and hour of the day exceeds the threshold.

    `rows` are rows of the table. `zone` (an IANA name) is the time zone of the hours: human activity follows local
    clocks. The score is (value - median) / (1.4826 * MAD), where MAD is the median of |value - median|. If more than
    half of the values are equal, MAD is 0, and 1.2533 times the mean of |value - median| replaces the divisor. If all
    values are equal, there are no anomalies. Groups with fewer than `least` observations are skipped.

    Columns: `series`, `property`, `unit`, `ts`, `hour` (0 to 23), `value`, `median`, `spread` (the divisor; the last
    three in `unit`), `z`.
    """
    observations = numeric_rows(rows).withColumn("hour", F.hour(F.from_utc_timestamp("ts", zone)))
    medians = observations.groupBy(*_GROUP).agg(F.median("value").alias("median"), F.count("value").alias("count"))
    deviating = join_on(observations, medians.where(F.col("count") >= least), _GROUP).withColumn(
        "deviation", F.col("value") - F.col("median")
    )
    mad = F.median(F.abs("deviation")) * MAD
    spreads = deviating.groupBy(*_GROUP).agg(
        F.when(mad > 0, mad).otherwise(F.avg(F.abs("deviation")) * MEAN_DEVIATION).alias("spread")
    )
    z = F.col("deviation") / F.col("spread")
    # A spread of 0 cannot be a divisor. All values of such a group are equal.
    scored = join_on(deviating, spreads.where(F.col("spread") > 0), _GROUP)
    return scored.where(F.abs(z) > threshold).select(*OBSERVED, "ts", "hour", "value", "median", "spread", z.alias("z"))
