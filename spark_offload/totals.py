"""Totals of each outbox in the table: numbers of observations and of lost ones, and the times of the first and last.

Each ingestion commit stores the totals after it next to the positions, so that they need no scan of the table. They are
left out where the commit does not know them exactly. The next maintenance counts the rows then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spark_offload.landing import OutboxEpoch
from spark_offload.segment_selection import SelectedSegment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EARLIEST: Final = -62_135_596_800_000_000
"""Start of the year 1 in microseconds since 1970: the first date of Python and of most readers of the table."""
LATEST: Final = 253_402_300_799_999_999
"""End of the year 9999, their last date. For times outside this range, `time_text` has the exact value."""


class Totals(NamedTuple):
    """Totals of one outbox."""

    observations: int = 0
    lost: int = 0
    """Number of observations that the gateway dropped, or that were deleted or accepted as lost."""
    oldest: int | None = None
    """Time of the oldest observation, in microseconds since 1970."""
    newest: int | None = None


def added(
    before: Mapping[OutboxEpoch, Totals] | None, taken: Iterable[SelectedSegment]
) -> dict[OutboxEpoch, Totals] | None:
    """Return the totals after the ingestion of segments, or None where the manifests do not tell them exactly.

    The times of a manifest include those of rows that the table has already. If these were lost there, they would be
    wrong.
    """
    if before is None:
        return None
    after = dict(before)
    for one in taken:
        outbox, count = one.segment.outbox, one.manifest.last - one.after
        known = after.get(outbox, Totals())
        if one.manifest.tombstone:
            after[outbox] = known._replace(lost=known.lost + count)
        elif one.after >= one.manifest.first:
            return None
        else:
            start, end = (min(max(time, EARLIEST), LATEST) for time in (one.manifest.start, one.manifest.end))
            after[outbox] = Totals(
                known.observations + count,
                known.lost,
                start if known.oldest is None else min(start, known.oldest),
                end if known.newest is None else max(end, known.newest),
            )
    return after


def with_lost(
    before: Mapping[OutboxEpoch, Totals] | None, lost: Mapping[OutboxEpoch, int]
) -> dict[OutboxEpoch, Totals] | None:
    """Return the totals after the loss of observations of some outboxes."""
    if before is None:
        return None
    more = {outbox: before.get(outbox, Totals()) for outbox in lost}
    return {**before, **{outbox: one._replace(lost=one.lost + lost[outbox]) for outbox, one in more.items()}}


def counted(rows: DataFrame) -> dict[OutboxEpoch, Totals]:
    """Count the rows of a table, without those that no gateway can have sent."""
    from pyspark.sql import functions as F  # noqa: N812  this module is also for programs without a session

    observed = F.when(F.col("lost").isNull(), F.col("ts"))
    found = (
        rows.where("seq IS NOT NULL")
        .groupBy("gateway", "epoch")
        .agg(
            F.count(observed),
            F.coalesce(F.sum("lost"), F.lit(0)),
            # As numbers: PySpark would convert times to the local time zone.
            F.unix_micros(F.min(observed)),
            F.unix_micros(F.max(observed)),
        )
    )
    counts = {OutboxEpoch(row[0], row[1]): Totals(*row[2:]) for row in found.collect()}
    return {outbox: one for outbox, one in counts.items() if outbox.valid}


def to_json(totals: Mapping[OutboxEpoch, Totals]) -> dict[str, list[int | None]]:
    """Return totals as members of the metadata of a commit."""
    return {str(outbox): list(one) for outbox, one in totals.items()}


def from_json(body: Any) -> dict[OutboxEpoch, Totals] | None:  # noqa: ANN401  JSON
    """Read totals from the metadata of a commit; None if it has none."""
    try:
        found = {OutboxEpoch(*name.split("/")): Totals(*one) for name, one in body.items()}
    except (AttributeError, TypeError):
        return None
    return found if all(type(one.observations) is int and type(one.lost) is int for one in found.values()) else None
