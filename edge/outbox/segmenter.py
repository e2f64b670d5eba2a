"""From rows of the outbox to segments: made when they are shipped, and never kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from edge.outbox.observation import Context
from edge.outbox.segment import Manifest, packed
from edge.outbox.table import Damaged, Lost, Row


class Stored(Protocol):
    """What there is to be cut: the outbox, read from a thread that is not the writer's."""

    @property
    def gateway(self) -> str:
        """Its name."""

    @property
    def epoch(self) -> str:
        """Which outbox of this gateway it is."""

    def rows(self, first: int, limit: int) -> Iterable[Row]:
        """Number, context and `segment.body` of what is stored from `first` on, in order, `limit` at the most."""

    def contexts(self, ids: Iterable[int]) -> Mapping[int, Context]:
        """What these contexts are."""

    def lost(self) -> Sequence[Lost]:
        """What was dropped and not yet acknowledged, in order."""


class Segment(NamedTuple):
    """A segment on its way."""

    manifest: Manifest
    rows: bytes
    """The file of rows; empty where the manifest is a tombstone."""


def cut(stored: Stored, first: int, last: int) -> Segment:
    """The segment that begins with `first` and ends with `last`, or earlier where rows and dropped ones meet.

    The same rows are the same bytes. Raises `Damaged`.
    """
    rows: list[Row] = []
    for row in stored.rows(first, last - first + 1):
        if row[0] != first + len(rows):
            break
        rows.append(row)
    if not rows:  # only then, so that what is dropped meanwhile is found there
        return _tombstone(stored, first, last)
    data = packed(f"{seq}\t{context}\t{body}" for seq, context, body in rows)
    times = [int(body.partition("\t")[0]) for _, _, body in rows]
    return Segment(
        Manifest(
            gateway=stored.gateway,
            epoch=stored.epoch,
            first=first,
            last=first + len(rows) - 1,
            start=min(times),
            end=max(times),
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            contexts=stored.contexts({context for _, context, _ in rows}),
        ),
        data,
    )


def _tombstone(stored: Stored, first: int, last: int) -> Segment:
    """Ranges that were dropped one after the other are one tombstone."""
    ranges: list[Lost] = []
    end = first - 1
    for lost in stored.lost():
        if lost.first <= end + 1 <= lost.last and end < last:
            ranges.append(lost)
            end = min(last, lost.last)
    if not ranges:
        raise Damaged(f"observation {first} is not stored, and was not dropped")
    return Segment(
        Manifest(
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
