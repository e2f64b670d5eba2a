"""Choice of the segments of a round: for each outbox, those that continue the numbers of the table, up to a gap.

Outboxes take turns, so that the backlog of one does not delay the others. The checksum, the number of rows and their
order are checked for each segment; this costs little compared with the work of Spark.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from edge.outbox.segment import SegmentDamaged, SegmentManifest, SegmentNewer
from edge.outbox.segment_validation import check_rows, validate_rows
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment, Quarantined, age

_THREADS: Final = 8
_SEGMENTS: Final = 20_000
"""Most segments of a round, however few rows they have."""


class SelectedSegment(NamedTuple):
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

    taken: list[SelectedSegment] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[Quarantined] = field(default_factory=list)
    """Segments that were moved to quarantine."""
    newer: list[PendingSegment] = field(default_factory=list)
    """Segments in a newer schema, which stay in the landing zone."""
    more: bool = False
    """Whether segments are left for another round."""
    problems: list[str] = field(default_factory=list)
    """Files that could not be read or moved, with the reason and the remedy."""

    def positions(self, before: Mapping[OutboxEpoch, int]) -> dict[OutboxEpoch, int]:
        """Return the last number of each outbox after the ingestion of all taken segments."""
        after = dict(before)
        for taken in self.taken:
            after[taken.segment.outbox] = taken.segment.last
        return after


def look(landing: LandingZone, positions: Mapping[OutboxEpoch, int], most: int) -> Intake:
    """Choose segments with about `most` rows in total, and quarantine damaged ones.

    `positions` are the last numbers in the table.
    """
    found = Intake()
    waiting = {
        outbox: [one for one in landing.segments(outbox) if one.last > positions.get(outbox, 0)]
        for outbox in landing.outboxes()
    }
    chosen = _take_turns(landing, waiting, positions, most, found)
    # Threads help here: reading, hashing and unpacking release the interpreter lock.
    with ThreadPoolExecutor(_THREADS) as pool:
        verdicts = list(pool.map(lambda one: _rows_checked(landing, *one), chosen))
    sound: dict[OutboxEpoch, dict[PendingSegment, SegmentManifest]] = {}
    for (segment, manifest), verdict in zip(chosen, verdicts, strict=True):
        if verdict is None:
            sound.setdefault(segment.outbox, {})[segment] = manifest
        else:
            _sort_out(landing, segment, verdict, found)
    for segments in sound.values():
        found.taken += chain(segments, positions.get(next(iter(segments)).outbox, 0))
    after = found.positions(positions)
    # The numbers of a damaged segment are a gap, until the gateway has sent it again.
    gone = {(one.outbox, one.stem) for one in found.damaged}
    missing = (
        gap([one for one in behind if (one.outbox, one.stem) not in gone], after.get(outbox, 0))
        for outbox, behind in waiting.items()
    )
    found.gaps = [one for one in missing if one is not None]
    return found


def _take_turns(
    landing: LandingZone,
    waiting: Mapping[OutboxEpoch, list[PendingSegment]],
    positions: Mapping[OutboxEpoch, int],
    most: int,
    found: Intake,
) -> list[tuple[PendingSegment, SegmentManifest]]:
    """Choose segments with readable manifests: one of each outbox in turn, up to its first gap."""
    chosen: list[tuple[PendingSegment, SegmentManifest]] = []
    reached = dict(positions)
    turns = deque((outbox, iter(behind)) for outbox, behind in waiting.items())
    rows_left = most
    while turns:
        outbox, behind = turns.popleft()
        segment = next(behind, None)
        if segment is None or segment.first > reached.get(outbox, 0) + 1:
            continue
        if rows_left <= 0 or len(chosen) >= _SEGMENTS:
            found.more = True
            break
        turns.append((outbox, behind))
        try:
            manifest = landing.manifest(segment)
        except FileNotFoundError:
            continue
        except (SegmentDamaged, SegmentNewer, OSError) as fault:
            _sort_out(landing, segment, fault, found)
            continue
        chosen.append((segment, manifest))
        new = segment.last - reached.get(outbox, 0)
        rows_left -= 1 if manifest.tombstone else max(0, new)
        reached[outbox] = segment.last if new > 0 else reached[outbox]
    return chosen


def _sort_out(landing: LandingZone, segment: PendingSegment, fault: Exception, found: Intake) -> None:
    """Quarantine a damaged segment, and report one that must stay where it is."""
    if isinstance(fault, SegmentNewer):
        found.newer.append(segment)
    elif isinstance(fault, SegmentDamaged):
        put_aside(landing, segment, str(fault), found.damaged, found.problems)
    elif not isinstance(fault, FileNotFoundError):
        found.problems.append(f"{segment} cannot be read ({fault}): let the ingester read it")


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


def put_aside(
    landing: LandingZone, segment: PendingSegment, reason: str, damaged: list[Quarantined], problems: list[str]
) -> None:
    """Move a segment to quarantine and add it to `damaged`, or to `problems` if it cannot be moved."""
    try:
        landing.quarantine(segment, reason)
    except OSError as error:
        problems.append(
            f"{segment} is damaged ({reason}) and cannot be moved to quarantine ({error}): move or remove it"
        )
    else:
        damaged.append(Quarantined(segment.outbox, segment.stem, reason))


def unreadable(landing: LandingZone, taken: Iterable[SelectedSegment]) -> list[tuple[SelectedSegment, str]]:
    """Read the segments of a failed commit cell by cell. Return those that Spark cannot read, with the reason."""
    found = []
    for one in taken:
        if not one.manifest.tombstone:
            try:
                validate_rows(one.manifest, landing.rows(one.segment, one.manifest))
            except SegmentDamaged as fault:
                found.append((one, str(fault)))
            except FileNotFoundError:
                found.append((one, "its rows are missing"))
            except OSError:  # the next round reports it
                continue
    return found


def chain(segments: Mapping[PendingSegment, SegmentManifest], position: int) -> list[SelectedSegment]:
    """Choose segments of an outbox that cover its numbers after a position without a gap.

    Segments may overlap, for example after a gateway sent a segment again with other bounds. The greedy choice prefers
    segments with rows to tombstones, and then the segment that reaches furthest.
    """
    chosen: list[SelectedSegment] = []
    later = deque(sorted(segments))
    fitting: list[tuple[bool, int, PendingSegment]] = []
    while True:
        while later and later[0].first <= position + 1:
            segment = later.popleft()
            heapq.heappush(fitting, (segments[segment].tombstone, -segment.last, segment))
        while fitting and -fitting[0][1] <= position:
            heapq.heappop(fitting)
        if not fitting:
            return chosen
        best = heapq.heappop(fitting)[2]
        chosen.append(SelectedSegment(best, segments[best], position))
        position = best.last


def _rows_checked(landing: LandingZone, segment: PendingSegment, manifest: SegmentManifest) -> Exception | None:
    """Return the fault of the rows of a segment, or None."""
    if manifest.tombstone:
        return None
    try:
        check_rows(manifest, landing.rows(segment, manifest))
    except FileNotFoundError as gone:
        return SegmentDamaged("its rows are missing") if segment.manifest.exists() else gone
    except (SegmentDamaged, OSError) as fault:
        return fault
    return None
