"""Slices of segments: the observations after a position of each outbox, in the order of their numbers.

The segments are those that the ingester would take: validated, and without a gap in the numbers. But nothing is
moved, removed or written here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edge.outbox.segment import SegmentDamaged, SegmentManifest, SegmentNewer
from edge.outbox.segment_validation import check_readable
from spark_offload.errors import LandingRefused
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment
from spark_offload.segment_selection import chain

Positions = Mapping[OutboxEpoch, int]
"""For each outbox, a number up to which all observations were read. Others begin at 0."""

UNLIMITED: Final = 10**18
"""Above all numbers of observations."""

_log = logging.getLogger(__name__)


class Slice(NamedTuple):
    """The observations of a segment with the numbers `after` + 1 to `upto`."""

    segment: PendingSegment
    manifest: SegmentManifest
    after: int
    upto: int

    @property
    def rows(self) -> int:
        """Number of rows; a tombstone is one row."""
        return 1 if self.manifest.tombstone else self.upto - self.after


class LandingSlices:
    """The slices of a landing zone."""

    def __init__(
        self, folder: Path, gateways: Collection[str] | None = None, *, fail_on_data_loss: bool = True
    ) -> None:
        """Open a landing zone for some gateways, or for all. Raises `LandingRefused` if it does not exist."""
        self._landing = LandingZone(folder)
        self._gateways = gateways
        self._fail = fail_on_data_loss
        self._valid: dict[PendingSegment, tuple[tuple[int, int, int], SegmentManifest]] = {}
        """State of the manifest's file, and the manifest, of valid segments. Tasks check the SHA-256 of rows again."""

    def acknowledged(self) -> dict[OutboxEpoch, int]:
        """Return the last number in the table of each outbox, as far as the ingester has acknowledged it."""
        numbers = {
            OutboxEpoch(gateway, epoch): entry["last"]
            for gateway in self._landing.gateways()
            if self._gateways is None or gateway in self._gateways
            for epoch, entry in self._landing.acknowledged(gateway).items()
        }
        return {outbox: last for outbox, last in numbers.items() if outbox.valid}

    def earliest(self) -> dict[OutboxEpoch, int]:
        """Return the first position from which the landing zone has all observations of each outbox.

        The ingester removes segments by their age, so that an old one may remain without its successors.
        """
        positions = self.acknowledged()
        for outbox in self.outboxes():
            acknowledged, start, end = positions.get(outbox, 0), 0, 0
            for segment in self._landing.segments(outbox):
                if segment.first > acknowledged + 1:
                    break
                start = segment.first - 1 if segment.first > end + 1 else start
                end = max(end, segment.last)
            positions[outbox] = start if end >= acknowledged else acknowledged
        return positions

    def outboxes(self) -> list[OutboxEpoch]:
        """Return the outboxes that have sent data, of the chosen gateways."""
        found = self._landing.outboxes()
        return [one for one in found if self._gateways is None or one.gateway in self._gateways]

    def ends(self) -> dict[OutboxEpoch, int]:
        """Return the last known number of each outbox, in the landing zone or in the table, behind gaps too."""
        ends = self.acknowledged()
        for outbox in self.outboxes():
            ends[outbox] = max([ends.get(outbox, 0), *(one.last for one in self._landing.segments(outbox))])
        return ends

    def after(
        self, outbox: OutboxEpoch, position: int, acknowledged: int, upto: int, most: int = UNLIMITED
    ) -> tuple[list[Slice], int]:
        """Return the slices of an outbox after a position, and their end.

        They reach to the number `upto`, to the first gap, or have `most` rows. `acknowledged` must be older than this
        call. Numbers up to it that have left the landing zone raise `LandingRefused`, or are left out without
        `fail_on_data_loss`.
        """
        slices: list[Slice] = []
        segments = [one for one in self._landing.segments(outbox) if one.last > position]
        while most > 0 and position < upto:
            reachable = list(_reachable(segments, position, min(upto, position + most)))
            found = {one: manifest for one in reachable if (manifest := self._validated(one))}
            chosen = _cut(found, position, upto, most)
            if chosen:
                slices += chosen
                most -= sum(one.rows for one in chosen)
                position = chosen[-1].upto
                continue
            if position >= min(acknowledged, upto):
                break
            damaged = set(reachable) - set(found)
            ahead = [one.first - 1 for one in segments if one.first > position + 1 and one not in damaged]
            present = min([acknowledged, upto, *ahead])
            if self._fail:
                fate = "have left" if all(one.first > position + 1 for one in damaged) else "cannot be read in"
                raise LandingRefused(
                    f"observations {position + 1:,} to {present:,} of {outbox} were acknowledged and {fate} the"
                    f" landing zone {self._landing.folder}: read them, or the row that tells their loss, from the"
                    " table, and begin with a new checkpoint or set failOnDataLoss to false"
                )
            position = present
        return slices, position

    def _validated(self, segment: PendingSegment) -> SegmentManifest | None:
        """Return the manifest of a segment that the ingester can take, or None.

        The ingester does not compare the times of the manifest with those of the rows.
        """
        try:
            status = segment.manifest.stat()
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._valid.get(segment)
            if known is None or known[0] != state:
                manifest = self._landing.manifest(segment)
                if not manifest.tombstone:
                    check_readable(manifest, self._landing.rows(segment, manifest))
                known = self._valid[segment] = (state, manifest)
            return known[1]
        except SegmentNewer as fault:
            _log.warning("%s waits in the landing zone: %s", segment, fault)
        except SegmentDamaged as fault:
            _log.warning("%s is damaged (%s): edge-history ingest moves it to quarantine", segment, fault)
        except FileNotFoundError:
            _log.warning("%s has left the landing zone, or has no rows", segment)
        except OSError as fault:
            _log.warning("%s cannot be read (%s): let this process read it", segment, fault)
        return None

    def forget(self, positions: Positions) -> None:
        """Free the memory of segments up to these positions, which will not be asked for again."""
        self._valid = {one: known for one, known in self._valid.items() if one.last > positions.get(one.outbox, 0)}


def content(one: Slice, *, fail_on_data_loss: bool) -> bytes | None:
    """Return the content of the rows file of a slice.

    Returns None for rows that have left the landing zone after their acknowledgement, without `fail_on_data_loss`.
    Raises `LandingRefused`, `SegmentDamaged`, `OSError`.
    """
    if one.manifest.tombstone:
        return b""
    landing = LandingZone(one.segment.rows.parents[2])
    try:
        return landing.rows(one.segment, one.manifest)
    except FileNotFoundError:
        last = landing.acknowledged(one.segment.outbox.gateway).get(one.segment.outbox.epoch, {}).get("last", 0)
        if one.upto > last:
            raise LandingRefused(
                f"{one.segment} has left the landing zone without an acknowledgement: load the landing zone or start"
                " the query again when its gateway has sent it again"
            ) from None
        if fail_on_data_loss:
            raise LandingRefused(
                f"{one.segment} was acknowledged and has left the landing zone: load the landing zone again, and read"
                " the table, or set failOnDataLoss to false"
            ) from None
        _log.warning("%s was acknowledged and has left the landing zone; its rows are left out", one.segment)
        return None


def _cut(found: Mapping[PendingSegment, SegmentManifest], position: int, upto: int, most: int) -> list[Slice]:
    """Return the slices after a position up to the number `upto`, with at most `most` rows.

    `found` must have all segments that begin up to `position` + `most`. Behind that, only a tombstone may reach.
    """
    chosen: list[Slice] = []
    reach = min(upto, position + most)
    for segment, manifest, after in chain(found, position):
        if after >= reach or most <= 0:
            break
        rows = segment.last if manifest.tombstone else after + most
        chosen.append(Slice(segment, manifest, after, min(segment.last, rows, upto)))
        most -= chosen[-1].rows
    return chosen


def _reachable(segments: Iterable[PendingSegment], position: int, upto: int) -> Iterator[PendingSegment]:
    """Yield the segments that continue a position, by their names, and begin up to the number `upto`."""
    reached = position
    for segment in segments:
        if segment.first > min(reached + 1, upto):
            return
        if segment.last > position:
            yield segment
            reached = max(reached, segment.last)
