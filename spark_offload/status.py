"""Status of the history: content of the table for each outbox, and pending segments in the landing zone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from spark_offload.landing import LandingZone, OutboxEpoch, Quarantined
from spark_offload.positions import place
from spark_offload.segment_selection import Gap, gap
from spark_offload.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class OutboxStatus:
    """Status of one outbox."""

    outbox: OutboxEpoch
    last: int = 0
    """The last number up to which the table has all observations."""
    observations: int = 0
    """Number of observations in the table."""
    lost: int = 0
    """Number of observations that the gateway dropped and reported."""
    oldest: datetime | None = None
    """Time of the oldest observation in the table."""
    newest: datetime | None = None
    acknowledged: int | None = None
    """The last number that is acknowledged to the gateway; None without a landing zone."""
    waiting: int = 0
    """Number of segments in the landing zone that are not in the table."""
    gap: Gap | None = None


@dataclass(slots=True)
class HistoryStatus:
    """Status of a table and of a landing zone."""

    version: int
    outboxes: list[OutboxStatus] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)


def status(spark: SparkSession, path: str, landing: LandingZone | None = None) -> HistoryStatus:
    """Collect the status without changing anything. Raises `TableRefused`."""
    version, positions = place(spark, path)
    found = {outbox: OutboxStatus(outbox, last) for outbox, last in positions.items()}
    observed = F.when(F.col("lost").isNull(), F.col("ts"))
    rows = (
        open_table(spark, path, version)
        .groupBy("gateway", "epoch")
        .agg(
            F.count(observed).alias("observations"),
            F.coalesce(F.sum("lost"), F.lit(0)).alias("lost"),
            F.unix_micros(F.min(observed)).alias("oldest"),
            F.unix_micros(F.max(observed)).alias("newest"),
        )
    )
    for row in rows.collect():
        outbox = OutboxEpoch(row["gateway"], row["epoch"])
        one = found.setdefault(outbox, OutboxStatus(outbox))
        one.observations, one.lost = row["observations"], row["lost"]
        one.oldest, one.newest = _timestamp(row["oldest"]), _timestamp(row["newest"])
    if landing is None:
        return HistoryStatus(version, sorted(found.values(), key=lambda one: one.outbox))
    for outbox in landing.outboxes():
        one = found.setdefault(outbox, OutboxStatus(outbox))
        segments = [segment for segment in landing.segments(outbox) if segment.last > one.last]
        one.acknowledged = landing.acknowledged(outbox.gateway).get(outbox.epoch, {}).get("last", 0)
        one.waiting = len(segments)
        one.gap = gap(segments, one.last)
    return HistoryStatus(version, sorted(found.values(), key=lambda one: one.outbox), landing.quarantined())


def _timestamp(microseconds: int | None) -> datetime | None:
    """Convert microseconds since 1970 to UTC. PySpark itself would use the local time zone."""
    return None if microseconds is None else _BEGINNING + timedelta(microseconds=microseconds)
