"""Slices of segments: the observations after a position of each outbox, in the order of their numbers.

The segments are those that the ingester would take: validated, and without a gap in the numbers. But nothing is
moved, removed or written here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from edge.outbox.segment import SegmentDamaged, SegmentManifest, SegmentNewer
from edge.outbox.segment_validation import validate_rows
from spark_offload.errors import LandingRefused
from spark_offload.landing import LandingZone, OutboxEpoch, PendingSegment
from spark_offload.segment_selection import chain

Positions = Mapping[OutboxEpoch, int]
"""For each outbox, a number up to which all observations were read. Others begin at 0."""

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

    def __init__(self, folder: Path, *, fail_on_data_loss: bool = True) -> None:
        """Open a landing zone. Raises `LandingRefused` if the directory does not exist."""
        self._landing = LandingZone(folder)
        self._fail = fail_on_data_loss
        self._valid: dict[PendingSegment, tuple[tuple[int, int, int], SegmentManifest]] = {}
        """State of the manifest's file, and the manifest, of valid segments. Tasks check the SHA-256 of rows again."""

    def acknowledged(self) -> dict[OutboxEpoch, int]:
        """Return the last number in the table of each outbox, as far as the ingester has acknowledged it."""
        numbers = {
            OutboxEpoch(gateway, epoch): entry["last"]
            for gateway in self._landing.gateways()
            for epoch, entry in self._landing.acknowledged(gateway).items()
        }
        return {outbox: last for outbox, last in numbers.items() if outbox.valid}

    def earliest(self) -> dict[OutboxEpoch, int]:
        """Return the first position from which the landing zone has all observations of each outbox.

        The ingester removes segments by their age, so that an old one may remain without its successors.
        """
        positions = self.acknowledged()
        for outbox in self._landing.outboxes():
            acknowledged, start, end = positions.get(outbox, 0), 0, 0
            for segment in self._landing.segments(outbox):
                if segment.first > acknowledged + 1:
                    break
                start = segment.first - 1 if segment.first > end + 1 else start
                end = max(end, segment.last)
            positions[outbox] = start if end >= acknowledged else acknowledged
        return positions

    def outboxes(self) -> list[OutboxEpoch]:
        """Return the outboxes that have sent data."""
        return list(self._landing.outboxes())

    def ends(self) -> dict[OutboxEpoch, int]:
        """Return the last known number of each outbox, in the landing zone or in the table, behind gaps too."""
        ends = self.acknowledged()
        for outbox in self._landing.outboxes():
            ends[outbox] = max([ends.get(outbox, 0), *(one.last for one in self._landing.segments(outbox))])
        return ends

    def after(self, outbox: OutboxEpoch, position: int, acknowledged: int, upto: int) -> tuple[list[Slice], int]:
        """Return the slices of an outbox after a position, up to the number `upto` or the first gap, and their end.

        `acknowledged` must be older than this call. Numbers up to it that have left the landing zone are in the table.
        They raise `LandingRefused`, or are left out without `fail_on_data_loss`.
        """
        slices: list[Slice] = []
        segments = [one for one in self._landing.segments(outbox) if one.last > position]
        while True:
            reachable = list(_reachable(segments, position, upto))
            found = {one: manifest for one in reachable if (manifest := self._validated(one))}
            chosen = [Slice(*one, min(one.segment.last, upto)) for one in chain(found, position) if one.after < upto]
            slices += chosen
            position = chosen[-1].upto if chosen else position
            if position >= min(acknowledged, upto):
                return slices, position
            damaged = set(reachable) - set(found)
            ahead = [one.first - 1 for one in segments if one.first > position + 1 and one not in damaged]
            present = min([acknowledged, upto, *ahead])
            if self._fail:
                raise LandingRefused(
                    f"observations {position + 1:,} to {present:,} of {outbox} are in the table and have left the"
                    f" landing zone {self._landing.folder}: read them from the table, and begin with a new checkpoint"
                    " or set failOnDataLoss to false"
                )
            position = present

    def _validated(self, segment: PendingSegment) -> SegmentManifest | None:
        """Return the manifest of a valid segment, or None."""
        try:
            status = segment.manifest.stat()
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._valid.get(segment)
            if known is None or known[0] != state:
                manifest = self._landing.manifest(segment)
                if not manifest.tombstone:
                    validate_rows(manifest, self._landing.rows(segment, manifest))
                known = self._valid[segment] = (state, manifest)
            return known[1]
        except (SegmentDamaged, SegmentNewer, OSError) as fault:
            _log.warning(
                "%s is left out (%s): edge-history ingest moves damaged segments to quarantine", segment, fault
            )
            return None

    def forget(self, positions: Positions) -> None:
        """Free the memory of segments up to these positions, which will not be asked for again."""
        self._valid = {one: known for one, known in self._valid.items() if one.last > positions.get(one.outbox, 0)}


def content(one: Slice) -> bytes:
    """Return the content of the rows file of a slice. Raises `LandingRefused`, `SegmentDamaged`, `OSError`."""
    if one.manifest.tombstone:
        return b""
    try:
        return LandingZone(one.segment.rows.parents[2]).rows(one.segment, one.manifest)
    except FileNotFoundError:
        raise LandingRefused(
            f"{one.segment} has left the landing zone, because it is in the table: load the landing zone again,"
            " and read the table"
        ) from None


def _reachable(segments: Iterable[PendingSegment], position: int, upto: int) -> Iterator[PendingSegment]:
    """Yield the segments that continue a position, by their names, until one contains `upto`."""
    reached = position
    for segment in segments:
        if reached >= upto or segment.first > reached + 1:
            return
        if segment.last > position:
            yield segment
            reached = max(reached, segment.last)
