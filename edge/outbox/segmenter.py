"""Segmenter: builds segments from rows of the outbox when they are shipped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from edge.outbox.observation import ObservationContext
from edge.outbox.segment import MOST_MANIFEST_BYTES, SegmentManifest, packed
from edge.outbox.sqlite_tables import DamagedDatabase, Lost, Row


class Stored(Protocol):
    """Read access to the outbox from a thread other than the writer's."""

    @property
    def gateway(self) -> str:
        """Name of the gateway."""

    @property
    def epoch(self) -> str:
        """Epoch of the outbox."""

    def rows(self, first: int, limit: int) -> Iterable[Row]:
        """Yield number, context and `segment.body` of up to `limit` observations from `first` on, in order."""

    def contexts(self, ids: Iterable[int]) -> Mapping[int, ObservationContext]:
        """Return the contexts with these ids."""

    def lost(self) -> Sequence[Lost]:
        """Return the ranges that were dropped and are not acknowledged, in order."""


class Segment(NamedTuple):
    """A segment to be shipped."""

    manifest: SegmentManifest
    rows: bytes
    """Content of the rows file; empty for a tombstone."""


def cut(stored: Stored, first: int, last: int) -> Segment:
    """Build the segment from `first` to `last`. It ends earlier where stored and dropped rows meet, or where the
    contexts of its rows would make the manifest too large.

    Equal rows give equal bytes. Raises `DamagedDatabase`.
    """
    rows: list[Row] = []
    for row in stored.rows(first, last - first + 1):
        if row[0] != first + len(rows):
            break
        rows.append(row)
    if not rows:  # The lost ranges are read after the rows: a row that the writer drops in between is found there.
        return _tombstone(stored, first, last)
    data = packed(f"{seq}\t{context}\t{body}" for seq, context, body in rows)
    times = [int(body.partition("\t")[0]) for _, _, body in rows]
    manifest = SegmentManifest(
        gateway=stored.gateway,
        epoch=stored.epoch,
        first=first,
        last=first + len(rows) - 1,
        start=min(times),
        end=max(times),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        contexts=stored.contexts({context for _, context, _ in rows}),
    )
    # A single row stays, however long its context is: receivers accept its manifest up to `MOST_READ_BYTES`.
    if len(rows) > 1 and len(manifest.to_json()) > MOST_MANIFEST_BYTES:
        return cut(stored, first, first + len(rows) // 2 - 1)
    return Segment(manifest, data)


def _tombstone(stored: Stored, first: int, last: int) -> Segment:
    """Build one tombstone from adjacent dropped ranges. Raises `DamagedDatabase` if the first number is not in one."""
    ranges: list[Lost] = []
    end = first - 1
    for lost in stored.lost():
        if lost.first <= end + 1 <= lost.last and end < last:
            ranges.append(lost)
            end = min(last, lost.last)
    if not ranges:
        raise DamagedDatabase(f"observation {first} is not stored, and was not dropped")
    return Segment(
        SegmentManifest(
            gateway=stored.gateway,
            epoch=stored.epoch,
            first=first,
            last=end,
            start=min(lost.start for lost in ranges),
            end=max(lost.end for lost in ranges),
            reason=ranges[0].reason,
        ),
        b"",
    )
