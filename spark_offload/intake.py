"""Choice of the segments of a round: for each outbox, those that continue the numbers of the table, up to a gap.

The module verifies the checksum and the row count of each segment. This costs little compared with the work of Spark.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from edge.outbox.segment import SegmentDamaged, SegmentManifest, SegmentNewer, unpacked
from spark_offload.errors import LandingRefused
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment, Quarantined, age

_THREADS: Final = 8
_BLOCK: Final = 1 << 20
_LONGEST: Final = 1 << 63
"""First time in microseconds that does not fit into a signed 64-bit integer."""


class Taken(NamedTuple):
    """A segment that the round ingests."""

    segment: PendingSegment
    manifest: SegmentManifest
    after: int
    """The last number that is already in the table, or in an earlier segment of the round."""


class Gap(NamedTuple):
    """Missing numbers of an outbox, and the segments that wait for them."""

    outbox: OutboxEpoch
    first: int
    last: int
    held: int
    """Number of segments behind the gap."""
    seconds: float
    """Waiting time of the oldest segment behind the gap."""

    def __str__(self) -> str:
        return (
            f"{self.outbox}: observations {self.first:,} to {self.last:,} are missing;"
            f" {self.held:,} later segments have waited for {timedelta(seconds=int(self.seconds))}"
        )


@dataclass(slots=True)
class Intake:
    """Result of a scan of the landing zone."""

    taken: list[Taken] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Quarantined] = field(default_factory=list)
    """Segments that were moved to quarantine."""
    newer: list[PendingSegment] = field(default_factory=list)
    """Segments in a newer schema, which stay in the landing zone."""
    more: bool = False
    """Whether segments are left for another round."""

    def positions(self, before: Mapping[OutboxEpoch, int]) -> dict[OutboxEpoch, int]:
        """Return the last number of each outbox after the ingestion of all taken segments."""
        after = dict(before)
        for taken in self.taken:
            after[taken.segment.outbox] = taken.segment.last
        return after


def look(landing: LandingZone, positions: Mapping[OutboxEpoch, int], most: int) -> Intake:
    """Choose segments with about `most` rows in total, and quarantine damaged ones. Raises `LandingRefused`.

    `positions` are the last numbers in the table.
    """
    found = Intake()
    waiting = {
        outbox: [one for one in landing.segments(outbox) if one.last > positions.get(outbox, 0)]
        for outbox in landing.outboxes()
    }
    near: list[PendingSegment] = []
    rows_left = most
    for outbox, behind in waiting.items():
        reached = positions.get(outbox, 0)
        for segment in behind:
            if segment.first > reached + 1:
                break
            if rows_left <= 0:
                found.more = True
                break
            near.append(segment)
            rows_left -= max(0, segment.last - reached)
            reached = max(reached, segment.last)
    # Threads help here: reading, hashing and unpacking release the interpreter lock.
    with ThreadPoolExecutor(_THREADS) as pool:
        verdicts = list(pool.map(lambda segment: _checked(landing, segment), near))
    sound: dict[OutboxEpoch, dict[PendingSegment, SegmentManifest]] = {}
    for segment, verdict in zip(near, verdicts, strict=True):
        if isinstance(verdict, SegmentManifest):
            sound.setdefault(segment.outbox, {})[segment] = verdict
        elif isinstance(verdict, SegmentNewer):
            found.newer.append(segment)
        else:
            # From here on its numbers are a gap, until the gateway has sent it again.
            waiting[segment.outbox].remove(segment)
            if verdict is not None:
                found.damaged.append(put_aside(landing, segment, str(verdict)))
    for segments in sound.values():
        found.taken += _chain(segments, positions)
    after = found.positions(positions)
    for outbox, behind in waiting.items():
        if missing := gap(behind, after.get(outbox, 0)):
            found.gaps.append(missing)
    return found


def gap(segments: Iterable[PendingSegment], position: int) -> Gap | None:
    """Return the first gap after a position in the segments of one outbox, or None without a gap."""
    behind = sorted(one for one in segments if one.last > position)
    for index, segment in enumerate(behind):
        if segment.first > position + 1:
            held = behind[index:]
            return Gap(
                segment.outbox, position + 1, segment.first - 1, len(held), max(age(one.manifest) for one in held)
            )
        position = max(position, segment.last)
    return None


def examine(landing: LandingZone, taken: Iterable[Taken]) -> list[Quarantined]:
    """Read the segments of a failed commit row by row, and quarantine the damaged ones."""
    return [
        put_aside(landing, one.segment, fault)
        for one in taken
        if (fault := _fault(one.manifest, one.segment)) is not None
    ]


def put_aside(landing: LandingZone, segment: PendingSegment, reason: str) -> Quarantined:
    """Move a segment to quarantine."""
    landing.quarantine(segment, reason)
    return Quarantined(segment.outbox, f"{segment.first:012d}-{segment.last:012d}", reason)


def _chain(segments: Mapping[PendingSegment, SegmentManifest], positions: Mapping[OutboxEpoch, int]) -> list[Taken]:
    """Choose segments of an outbox that cover its numbers without a gap.

    Segments may overlap, for example after a gateway sent a segment again with other bounds. The greedy choice prefers
    segments with rows to tombstones, and then the segment that reaches furthest.
    """
    chain: list[Taken] = []
    position = positions.get(next(iter(segments)).outbox, 0)
    while True:
        fitting = [one for one in segments if one.first <= position + 1 and one.last > position]
        if not fitting:
            return chain
        best = max(fitting, key=lambda one: (not segments[one].tombstone, one.last))
        chain.append(Taken(best, segments[best], position))
        position = best.last


def _checked(landing: LandingZone, segment: PendingSegment) -> SegmentManifest | SegmentDamaged | SegmentNewer | None:
    """Read and verify a segment. Returns its manifest, its fault, or None if its files have gone."""
    try:
        manifest = landing.manifest(segment)
    except FileNotFoundError:
        return None
    except (SegmentDamaged, SegmentNewer) as fault:
        return fault
    except OSError as error:
        raise LandingRefused(f"{segment.manifest} cannot be read ({error}): let the ingester read it") from error
    if manifest.tombstone:
        return manifest
    try:
        packed = segment.rows.read_bytes()
        manifest.check(packed)
        if (lines := _lines(packed)) != manifest.rows:
            return SegmentDamaged(f"it has {lines} rows, and its manifest states {manifest.rows}")
    except SegmentDamaged as fault:
        return fault
    except FileNotFoundError:
        return SegmentDamaged("its rows are missing") if segment.manifest.exists() else None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return SegmentDamaged(f"its rows cannot be unpacked: {error}")
    except OSError as error:
        raise LandingRefused(f"{segment.rows} cannot be read ({error}): let the ingester read it") from error
    return manifest


def _lines(packed: bytes) -> int:
    with gzip.open(io.BytesIO(packed)) as file:
        # In blocks: unpacked, a damaged or hostile file may be many times larger than packed.
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def _fault(manifest: SegmentManifest, segment: PendingSegment) -> str | None:
    """Return why a segment cannot be read: damage after its verification, or invalid data from the gateway."""
    if manifest.tombstone:
        return None
    try:
        packed = segment.rows.read_bytes()
        manifest.check(packed)
        for expected, (seq, context, cells) in enumerate(unpacked(packed), manifest.first):
            if seq != expected:
                return f"row {expected} has the number {seq}"
            if context not in manifest.contexts:
                return f"row {seq} has the context {context}, which is not in its manifest"
            if not -_LONGEST <= cells.time < _LONGEST:
                return f"the time of row {seq} does not fit into 64 bits"
    except SegmentDamaged as error:
        return str(error)
    except FileNotFoundError:
        return "its rows are missing"
    return None
