"""What of the segments that wait a round takes in: of each outbox what goes on where the table ends, up to a gap.

The checksum of each is looked at here; reading and counting them costs little beside what Spark does with them.
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

from edge.outbox.segment import Manifest, SegmentDamaged, SegmentNewer, unpacked
from spark_offload.errors import LandingRefused
from spark_offload.landing import Landing, Outbox, PendingSegment, Quarantined, age

_THREADS: Final = 8
_BLOCK: Final = 1 << 20
_LONGEST: Final = 1 << 63
"""Of a time: what does not fit into 64 bits."""


class Taken(NamedTuple):
    """A segment that is taken in."""

    segment: PendingSegment
    manifest: Manifest
    after: int
    """The number up to which its rows are in the table already, or in another segment that is taken in."""


class Gap(NamedTuple):
    """Numbers that have not come, and what waits for them."""

    outbox: Outbox
    first: int
    last: int
    held: int
    """Segments that wait behind."""
    seconds: float
    """For so long the one that came first has waited."""

    def __str__(self) -> str:
        return (
            f"{self.outbox}: {self.first:,} to {self.last:,} have not come;"
            f" {self.held:,} segments wait behind, for {timedelta(seconds=int(self.seconds))}"
        )


@dataclass(slots=True)
class Intake:
    """What a look at the landing zone found."""

    taken: list[Taken] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Quarantined] = field(default_factory=list)
    """What was put aside."""
    newer: list[PendingSegment] = field(default_factory=list)
    """In a schema that this program does not know; left where it is."""
    more: bool = False
    """Whether some was left for another round."""

    def positions(self, before: Mapping[Outbox, int]) -> dict[Outbox, int]:
        """The last number of each outbox when all of it is in the table."""
        after = dict(before)
        for taken in self.taken:
            after[taken.segment.outbox] = taken.segment.last
        return after


def look(landing: Landing, positions: Mapping[Outbox, int], most: int) -> Intake:
    """Choose segments of about `most` rows in all; what is damaged goes to quarantine. Raises `LandingRefused`."""
    found = Intake()
    waiting = {
        outbox: [one for one in landing.segments(outbox) if one.last > positions.get(outbox, 0)]
        for outbox in landing.outboxes()
    }
    near: list[PendingSegment] = []
    room = most
    for outbox, behind in waiting.items():
        reached = positions.get(outbox, 0)
        for segment in behind:
            if segment.first > reached + 1:
                break
            if room <= 0:
                found.more = True
                break
            near.append(segment)
            room -= max(0, segment.last - reached)
            reached = max(reached, segment.last)
    with ThreadPoolExecutor(_THREADS) as pool:
        verdicts = list(pool.map(lambda segment: _checked(landing, segment), near))
    sound: dict[Outbox, dict[PendingSegment, Manifest]] = {}
    for segment, verdict in zip(near, verdicts, strict=True):
        if isinstance(verdict, Manifest):
            sound.setdefault(segment.outbox, {})[segment] = verdict
        elif isinstance(verdict, SegmentNewer):
            found.newer.append(segment)
        else:
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
    """The first numbers after a position that no segment of an outbox has, where others wait behind."""
    behind = sorted(one for one in segments if one.last > position)
    for index, segment in enumerate(behind):
        if segment.first > position + 1:
            held = behind[index:]
            return Gap(
                segment.outbox, position + 1, segment.first - 1, len(held), max(age(one.manifest) for one in held)
            )
        position = max(position, segment.last)
    return None


def examine(landing: Landing, taken: Iterable[Taken]) -> list[Quarantined]:
    """Read segments that Spark could not read row by row; put aside those that are to blame."""
    return [
        put_aside(landing, one.segment, fault)
        for one in taken
        if (fault := _fault(one.manifest, one.segment)) is not None
    ]


def put_aside(landing: Landing, segment: PendingSegment, reason: str) -> Quarantined:
    """Have a segment in quarantine."""
    landing.quarantine(segment, reason)
    return Quarantined(segment.outbox, f"{segment.first:012d}-{segment.last:012d}", reason)


def _chain(segments: Mapping[PendingSegment, Manifest], positions: Mapping[Outbox, int]) -> list[Taken]:
    """Those of an outbox that go on without a gap, each as far as it brings us; rows before tombstones."""
    chain: list[Taken] = []
    position = positions.get(next(iter(segments)).outbox, 0)
    while True:
        fitting = [one for one in segments if one.first <= position + 1 and one.last > position]
        if not fitting:
            return chain
        best = max(fitting, key=lambda one: (not segments[one].tombstone, one.last))
        chain.append(Taken(best, segments[best], position))
        position = best.last


def _checked(landing: Landing, segment: PendingSegment) -> Manifest | SegmentDamaged | SegmentNewer | None:
    """What becomes of a segment. None: it has gone."""
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
            return SegmentDamaged(f"it has {lines} rows, its manifest says {manifest.rows}")
    except SegmentDamaged as fault:
        return fault
    except FileNotFoundError:
        return SegmentDamaged("its rows are not there") if segment.manifest.exists() else None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return SegmentDamaged(f"its rows cannot be unpacked: {error}")
    except OSError as error:
        raise LandingRefused(f"{segment.rows} cannot be read ({error}): let the ingester read it") from error
    return manifest


def _lines(packed: bytes) -> int:
    with gzip.open(io.BytesIO(packed)) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def _fault(manifest: Manifest, segment: PendingSegment) -> str | None:
    """Why a segment cannot be read: it was damaged since it was looked at, or the gateway wrote nonsense."""
    if manifest.tombstone:
        return None
    try:
        packed = segment.rows.read_bytes()
        manifest.check(packed)
        for expected, (seq, context, cells) in enumerate(unpacked(packed), manifest.first):
            if seq != expected:
                return f"row {expected} has the number {seq}"
            if context not in manifest.contexts:
                return f"row {seq} has the context {context}, which its manifest does not tell"
            if not -_LONGEST <= cells.time < _LONGEST:
                return f"the time of row {seq} does not fit into 64 bits"
    except SegmentDamaged as error:
        return str(error)
    except FileNotFoundError:
        return "its rows are not there"
    return None
