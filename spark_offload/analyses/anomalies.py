"""Anomalies: values that are far from what is usual for their series at their hour of the day."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_offload.analyses.measured import OBSERVED, beside, measured

THRESHOLD: Final = 3.5
"""From which z-score on a value is an anomaly (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""
LEAST: Final = 10
"""Of fewer observations nothing is usual."""

MAD: Final = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
MEAN_DEVIATION: Final = 1.2533
"""The same over its mean absolute deviation."""

_GROUP: Final = (*OBSERVED, "hour")


def anomalies(rows: DataFrame, *, threshold: float = THRESHOLD, least: int = LEAST, zone: str = "UTC") -> DataFrame:
    """Observations whose robust z-score among those of their series and hour of the day is beyond the threshold.

    `rows` are those of the table; `zone` (an IANA name) says which time the hour is of: what people do follows their
    clocks. The score is (value - median) / (1.4826 * MAD), where MAD is the median of |value - median|. Where more than
    half of the values are equal MAD is 0, and 1.2533 times the mean of |value - median| takes its place; where all are
    equal there is none to find. Groups of fewer than `least` observations are passed over.

    Columns: `series`, `property`, `unit`, `ts`, `hour` (0 to 23), `value`, `median`, `spread` (the divisor; all three
    in that unit), `z`.
    """
    observations = measured(rows).withColumn("hour", F.hour(F.from_utc_timestamp("ts", zone)))
    medians = observations.groupBy(*_GROUP).agg(F.median("value").alias("median"), F.count("value").alias("count"))
    deviating = beside(observations, medians.where(F.col("count") >= least), _GROUP).withColumn(
        "deviation", F.col("value") - F.col("median")
    )
    mad = F.median(F.abs("deviation")) * MAD
    spreads = deviating.groupBy(*_GROUP).agg(
        F.when(mad > 0, mad).otherwise(F.avg(F.abs("deviation")) * MEAN_DEVIATION).alias("spread")
    )
    z = F.col("deviation") / F.col("spread")
    scored = beside(deviating, spreads.where(F.col("spread") > 0), _GROUP)
    return scored.where(F.abs(z) > threshold).select(*OBSERVED, "ts", "hour", "value", "median", "spread", z.alias("z"))
