"""Ingestion in rounds: read the positions of the table, choose segments, commit them, then acknowledge them.

The table is the only state. After a crash at any time, the next round reads the positions from the table and continues.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from edge.backoff import Backoff, Retry
from spark_offload import newest_rows
from spark_offload.bad_segments import bad_segments
from spark_offload.commit import alone, append
from spark_offload.delete import apply_again, checked, keep_out
from spark_offload.deletions import Filter
from spark_offload.errors import IngestFailed, Overtaken
from spark_offload.gaps import acknowledged_but_missing, refuse_new_table
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment, Quarantined
from spark_offload.positions import state, totals_note
from spark_offload.provenance import segments_note
from spark_offload.rows import rows
from spark_offload.segment_deletion import may_contain
from spark_offload.segment_selection import Gap, SelectedSegment, look, put_aside, unreadable
from spark_offload.spark_errors import first_line
from spark_offload.table import location, make_table
from spark_offload.totals import added

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEP: Final = 86_400.0
"""Seconds for which segments stay in the landing zone after their ingestion."""
MOST: Final = 5_000_000
"""Approximate upper bound of the rows of a commit."""
_ATTEMPTS: Final = 5
"""Attempts of a round before it fails because other ingesters committed first."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestRound:
    """Result of a round."""

    version: int
    """Version of the table after the round."""
    observations: int = 0
    lost: int = 0
    """Observations that gateways dropped and reported in tombstones."""
    deleted: int = 0
    """Observations that were left out, because an operator has deleted such ones."""
    segments: int = 0
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Quarantined] = field(default_factory=list)
    newer: list[PendingSegment] = field(default_factory=list)
    more: bool = False
    """Whether segments are left for another round."""
    problems: list[str] = field(default_factory=list)
    """Files of single gateways that could not be read, moved or written, with the reason and the remedy."""

    def __str__(self) -> str:
        dropped = f", gateways dropped {self.lost:,} others" if self.lost else ""
        deleted = f", left out {self.deleted:,} deleted ones" if self.deleted else ""
        return f"ingested {self.observations:,} observations{dropped}{deleted} (table version {self.version})"


def ingest(
    spark: SparkSession,
    landing: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    keep: float = KEEP,
    most: int = MOST,
) -> list[IngestRound]:
    """Ingest all waiting segments. Returns the result of each round.

    `keep` is in seconds, `most` in rows of a commit. Raises `LandingRefused`, `TableRefused`, `TableBusy`,
    `IngestFailed`.
    """
    return list(rounds(spark, LandingZone(landing), table, keep=keep, most=most))


def rounds(
    spark: SparkSession,
    landing: LandingZone,
    table: str | os.PathLike[str],
    *,
    keep: float = KEEP,
    most: int = MOST,
    wait: float = 0.0,
) -> Iterator[IngestRound]:
    """Ingest like `ingest`, but yield each round when it ends, so that callers can report progress.

    `wait` is the time in seconds to wait for the lock of the table, for each round.
    """
    path = location(spark, table)
    more = True
    while more:
        done = _with_patience(spark, landing, path, keep, most, wait)
        more = done.more
        yield done


def _with_patience(
    spark: SparkSession, landing: LandingZone, path: str, keep: float, most: int, wait: float
) -> IngestRound:
    # A random pause keeps two ingesters from colliding again.
    retry = Retry(Backoff(first=0.5, most=4.0))
    while True:
        try:
            with alone(spark, path, wait):
                return _round(spark, landing, path, keep, most)
        except Overtaken as overtaken:
            pause = retry.failed()
            if retry.failures == _ATTEMPTS:
                raise
            _log.info("%s", overtaken)
            time.sleep(pause)


def _round(spark: SparkSession, landing: LandingZone, path: str, keep: float, most: int) -> IngestRound:
    refuse_new_table(spark, landing, path)
    make_table(spark, path)
    deletions = checked(spark, path)
    apply_again(spark, path, deletions)
    version, positions, totals = state(spark, path)
    # An earlier round may have died between its commit and the acknowledgement.
    problems = _acknowledge(landing, positions, version, positions)
    found = look(landing, positions, most)
    done = IngestRound(version, gaps=found.gaps, damaged=found.damaged, newer=found.newer)
    lacking = [
        f"{one} were acknowledged, but are not in the table: it was restored from an older state, or is another one."
        f" Restore the newer one, or accept: edge-history gaps accept {one.outbox.gateway} --landing {landing.folder}"
        f" --table {path}"
        for one in acknowledged_but_missing(landing, positions)
    ]
    done.problems = [*problems, *found.problems, *lacking]
    done.more = found.more and bool(found.taken or found.damaged)
    if found.taken:
        after = found.positions(positions)
        try:
            frame, deleted = _kept(rows(spark, found.taken), found.taken, deletions.filters)
            # A segment does not tell the times of the observations that were left out.
            note = totals_note(version, None if deleted else added(totals, found.taken))
            done.version = append(spark, path, frame, version, after, {**note, **segments_note(found.taken)})
        except Overtaken:
            raise
        except Exception as error:
            # Spark does not say which file it could not read: look for damaged segments and retry without them.
            blamed = unreadable(landing, found.taken) or bad_segments(spark, found.taken)
            for one, reason in blamed:
                put_aside(landing, one.segment, reason, done.damaged, done.problems)
            if not done.damaged:
                raise IngestFailed(f"Spark could not add to {path}: {first_line(error)}") from error
            done.more = True
            return done
        changed = {one.segment.outbox for one in found.taken}
        done.problems += _acknowledge(landing, {outbox: after[outbox] for outbox in changed}, done.version, after)
        positions = after
        done.segments = len(found.taken)
        for one in found.taken:
            count = one.manifest.last - one.after
            if one.manifest.tombstone:
                done.lost += count
            else:
                done.observations += count
        done.deleted = deleted
        done.observations -= deleted
    landing.clean(positions, keep)
    if found.taken:
        done.problems += newest_rows.renew(spark, path, done.version)
    return done


def _kept(frame: DataFrame, taken: Sequence[SelectedSegment], filters: Sequence[Filter]) -> tuple[DataFrame, int]:
    """Leave out deleted observations. Returns the other rows, and the number of deleted ones."""
    if any(may_contain(one.manifest, each) is not False for one in taken for each in filters):
        return keep_out(frame, filters)
    return frame, 0


def _acknowledge(
    landing: LandingZone, positions: Mapping[OutboxEpoch, int], version: int, everything: Mapping[OutboxEpoch, int]
) -> list[str]:
    """Acknowledge `positions`, and return the problems.

    In a full landing zone, all segments that are in the table (`everything`) make room.
    """
    failed = landing.acknowledge(positions, version)
    if any(error.errno in (errno.ENOSPC, errno.EDQUOT) for _, error in failed) and landing.clean(everything, 0):
        failed = landing.acknowledge(positions, version)
    return [
        f"{path} cannot be written ({error}), so this gateway keeps its observations: let the ingester write it"
        for path, error in failed
    ]
