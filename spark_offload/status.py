"""Status of the history: content of the table for each outbox, and pending segments in the landing zone.

Positions and totals come from the log of the table. Its rows are counted only if another program has changed them, or
if observations were deleted since the last maintenance.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from spark_offload.landing import LandingZone, OutboxEpoch, Quarantined, age
from spark_offload.positions import state
from spark_offload.segment_selection import Gap, gap
from spark_offload.table import location, open_table
from spark_offload.totals import counted

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
    lag: float = 0.0
    """Time in seconds for which the oldest of these segments has waited; 0 without one."""
    gap: Gap | None = None


@dataclass(slots=True)
class HistoryStatus:
    """Status of a table and of a landing zone."""

    version: int
    outboxes: list[OutboxStatus] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    counted: bool = True
    """Whether the totals of the table are known."""


def status(
    spark: SparkSession,
    table: str | os.PathLike[str],
    landing: LandingZone | None = None,
    *,
    count: bool = True,
) -> HistoryStatus:
    """Collect the status without changing anything. Raises `TableRefused`.

    With `count`, the rows are counted if the log does not have the totals.
    """
    path = location(spark, table)
    version, positions, totals = state(spark, path)
    if totals is None and count:
        totals = counted(open_table(spark, path, version))
    known = totals is not None
    found = {outbox: OutboxStatus(outbox, last) for outbox, last in positions.items()}
    for outbox, each in (totals or {}).items():
        one = found.setdefault(outbox, OutboxStatus(outbox))
        one.observations, one.lost = each.observations, each.lost
        one.oldest, one.newest = _timestamp(each.oldest), _timestamp(each.newest)
    if landing is None:
        return HistoryStatus(version, sorted(found.values(), key=lambda one: one.outbox), counted=known)
    for outbox in landing.outboxes():
        one = found.setdefault(outbox, OutboxStatus(outbox))
        segments = [segment for segment in landing.segments(outbox) if segment.last > one.last]
        one.acknowledged = landing.acknowledged(outbox.gateway).get(outbox.epoch, {}).get("last", 0)
        one.waiting = len(segments)
        one.lag = max((age(segment.manifest) for segment in segments), default=0.0)
        one.gap = gap(segments, one.last)
    return HistoryStatus(version, sorted(found.values(), key=lambda one: one.outbox), landing.quarantined(), known)


def _timestamp(microseconds: int | None) -> datetime | None:
    """Convert microseconds since 1970 to UTC. PySpark itself would use the local time zone."""
    return None if microseconds is None else _BEGINNING + timedelta(microseconds=microseconds)
