"""Numbers that the table cannot get any more: which ones are missing, and accepting their loss.

An outbox continues in the table only without a gap. Two kinds of gaps never close by themselves: observations that the
gateway does not have any more, and those that were acknowledged from a later state of the table, after which the
gateway deleted them. An operator accepts such a gap; a row with `lost` takes its place, as after a tombstone. The
landing zone gets that tombstone, too, so that a stream that reads the landing zone continues after the gap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from edge.outbox.segment import MOST_ROWS, SegmentManifest
from spark_offload.commit import WAIT, alone, append
from spark_offload.errors import TableRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.local_rows import local_frame
from spark_offload.positions import state, totals_note
from spark_offload.segment_selection import gap
from spark_offload.table import PARTITION, SCHEMA, exists, location, make_table
from spark_offload.totals import with_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_TOMBSTONES: Final = 1000
"""Tombstones of a gap: 100 million observations."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_log = logging.getLogger(__name__)


class Missing(NamedTuple):
    """Numbers of an outbox that neither the table nor the landing zone has, and that hold up later segments."""

    outbox: OutboxEpoch
    first: int
    last: int
    acknowledged: bool
    """Whether some of them were acknowledged: the gateway has deleted these."""

    def __str__(self) -> str:
        return f"{self.outbox}: observations {self.first:,} to {self.last:,}"


def missing(landing: LandingZone, positions: Mapping[OutboxEpoch, int]) -> Iterator[Missing]:
    """Yield the first missing numbers of each outbox. `positions` are the last numbers in the table."""
    acknowledged = _acknowledged(landing)
    for outbox in sorted({*landing.outboxes(), *acknowledged}):
        segments, position = landing.segments(outbox), positions.get(outbox, 0)
        if found := gap(segments, position):
            first, last = found.first, found.last
        else:
            first, last = max(position, *(one.last for one in segments), 0) + 1, acknowledged.get(outbox, 0)
        if first <= last:
            yield Missing(outbox, first, last, acknowledged=first <= acknowledged.get(outbox, 0))


def acknowledged_but_missing(landing: LandingZone, positions: Mapping[OutboxEpoch, int]) -> list[Missing]:
    """Return the numbers that were acknowledged, and are neither in the table nor in the landing zone.

    The table was restored from an older state then, or is another one.
    """
    if all(last <= positions.get(outbox, 0) for outbox, last in _acknowledged(landing).items()):
        return []  # the usual case, without reading the directories
    return [one for one in missing(landing, positions) if one.acknowledged]


def _acknowledged(landing: LandingZone) -> dict[OutboxEpoch, int]:
    return {
        OutboxEpoch(gateway, epoch): entry["last"]
        for gateway in landing.gateways()
        for epoch, entry in landing.acknowledged(gateway).items()
    }


def refuse_new_table(spark: SparkSession, landing: LandingZone, path: str) -> None:
    """Raise `TableRefused` if there is no table although observations were acknowledged.

    A mount that is missing, or a wrong path, must not begin a history again without those.
    """
    if exists(spark, path):
        return
    gateways = sum(bool(landing.acknowledged(gateway)) for gateway in landing.gateways())
    if gateways:
        raise TableRefused(
            f"there is no table at {path}, but observations of {gateways} gateways were acknowledged: mount or restore"
            f" the table. To begin a new one without them: edge-history gaps accept --all --landing {landing.folder}"
            f" --table {path}"
        )


def accept(
    spark: SparkSession,
    landing: LandingZone,
    table: str | os.PathLike[str],
    gateways: Iterable[str] | None,
    reason: str,
    wait: float = WAIT,
) -> list[Missing]:
    """Accept the loss of all missing numbers of some gateways, or of all with None. Returns what was accepted.

    One commit adds a row with `lost` for each outbox, and states `reason` in its metadata. `wait` is the time in
    seconds to wait for a round of an ingester. Raises `TableRefused`,
    `TableBusy`, `Overtaken`.
    """
    path = location(spark, table)
    wanted = None if gateways is None else set(gateways)
    with alone(spark, path, wait):
        make_table(spark, path)
        version, positions, totals = state(spark, path)
        accepted = [one for one in missing(landing, positions) if wanted is None or one.outbox.gateway in wanted]
        for one in accepted:
            if one.first != positions.get(one.outbox, 0) + 1:
                raise TableRefused(f"earlier observations of {one.outbox} wait: run edge-history ingest first")
        if accepted:
            now = datetime.now(UTC)
            rows = local_frame(spark, [_row(one, now) for one in accepted], SCHEMA)
            after = positions | {one.outbox: one.last for one in accepted}
            lost = with_lost(totals, {one.outbox: one.last - one.first + 1 for one in accepted})
            note = {"accepted": reason, **totals_note(version, lost)}
            append(spark, path, rows.coalesce(1), version, after, note)
            for one in accepted:
                _put_tombstones(landing, one, now, reason)
    return accepted


def _put_tombstones(landing: LandingZone, gone: Missing, now: datetime, reason: str) -> None:
    """Write tombstones for an accepted gap, of which none covers more numbers than a segment may have.

    The table has the loss already. So a tombstone that cannot be written only stops the streams at the gap.
    """
    time = (now - _BEGINNING) // _MICROSECOND
    starts = range(gone.first, gone.last + 1, MOST_ROWS)
    if len(starts) > _MOST_TOMBSTONES:
        _log.warning("%s are too many for tombstones in the landing zone: streams that read it stop there", gone)
        return
    try:
        for first in starts:
            last = min(gone.last, first + MOST_ROWS - 1)
            landing.put_tombstone(SegmentManifest(*gone.outbox, first, last, time, time, reason=reason))
    except OSError as error:
        _log.warning("tombstones of %s cannot be written (%s): streams of the landing zone stop there", gone, error)


def _row(gone: Missing, now: datetime) -> tuple[object, ...]:
    cells = {
        **gone.outbox._asdict(),
        "seq": gone.last,
        "ts": now,
        "replayed": False,
        "lost": gone.last - gone.first + 1,
        PARTITION: now.date(),
    }
    return tuple(cells.get(name) for name in SCHEMA.names)
