"""Provenance of rows: each ingestion commit names its segments, with the SHA-256 of the files that gateways sent.

A number of an outbox leads to the segment that contained it, and to the commit that added it to the table. The record
reaches back as far as the log of the table, which Delta keeps for 30 days by default (`delta.logRetentionDuration`).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from edge.outbox.segment import stem
from spark_offload.landing import OutboxEpoch
from spark_offload.positions import metadata
from spark_offload.segment_selection import SelectedSegment


class RecordedSegment(NamedTuple):
    """A segment in the metadata of a commit."""

    first: int
    last: int
    after: int
    """The last number that was already in the table: the commit added those after it."""
    sha256: str
    """SHA-256 of the file with its rows; empty for a tombstone."""
    version: int
    """Version of the table that the commit made."""
    time: datetime

    @property
    def stem(self) -> str:
        """File name of the segment without its suffix."""
        return stem(self.first, self.last)


def segments_note(taken: Iterable[SelectedSegment]) -> dict[str, object]:
    """Return the note of a commit that names its segments: for each outbox, the numbers and the SHA-256 of each."""
    segments: dict[str, list[list[object]]] = {}
    for one in taken:
        numbers = [one.manifest.first, one.manifest.last, one.after, one.manifest.sha256]
        segments.setdefault(str(one.segment.outbox), []).append(numbers)
    return {"segments": segments}


class Provenance:
    """The segments in the log of a table."""

    def __init__(self, commits: Sequence[Any]) -> None:
        """Read the record from the commits of a table, newest first."""
        self._segments: dict[OutboxEpoch, list[RecordedSegment]] = {}
        covered: dict[OutboxEpoch, int] = {}
        for commit in commits:
            for name, segments in ((metadata(commit) or {}).get("segments") or {}).items():
                outbox = OutboxEpoch(*name.split("/"))
                found = [
                    RecordedSegment(first, last, after, sha256, commit["version"], commit["timestamp"])
                    for first, last, after, sha256 in segments
                ]
                # After RESTORE, later commits add numbers again: theirs are the rows of the table.
                limit = covered.get(outbox)
                valid = [one for one in found if limit is None or one.after < limit]
                if valid:
                    self._segments.setdefault(outbox, []).extend(valid)
                    covered[outbox] = min(one.after for one in valid)
        for known in self._segments.values():
            known.sort(key=lambda one: one.after)

    def __len__(self) -> int:
        """Return the number of segments."""
        return sum(len(known) for known in self._segments.values())

    def of(self, outbox: OutboxEpoch, seq: int) -> RecordedSegment | None:
        """Return the segment that added a number to the table, or None if the log does not name it."""
        known = self._segments.get(outbox, [])
        place = bisect.bisect_left(known, seq, key=lambda one: one.after) - 1
        return known[place] if place >= 0 and seq <= known[place].last else None

    def unknown(self, outbox: OutboxEpoch, last: int) -> list[tuple[int, int]]:
        """Return the ranges of numbers up to `last` for which the log names no segment."""
        found, reached = [], 0
        for one in self._segments.get(outbox, []):
            if one.after > reached:
                found.append((reached + 1, min(one.after, last)))
            reached = max(reached, one.last)
        if reached < last:
            found.append((reached + 1, last))
        return [(first, end) for first, end in found if first <= end]
