"""Segments whose contexts need more than a manifest may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edge.outbox.observation import ObservationContext
from edge.outbox.segment import MOST_MANIFEST_BYTES
from edge.outbox.segmenter import cut

ROWS = 4000


class Outbox:
    """Observations, each with its own long context."""

    gateway = "box-1"
    epoch = "0123456789abcdef"

    def rows(self, first: int, limit: int) -> Iterable[tuple[int, int, str]]:
        return [(seq, seq, f"{seq}\t1") for seq in range(first, first + limit)]

    def contexts(self, ids: Iterable[int]) -> Mapping[int, ObservationContext]:
        return {number: ObservationContext(series=f"urn:x:{number}:" + "s" * 1000) for number in ids}

    def lost(self) -> Sequence[object]:
        return []


def test_a_segment_ends_where_its_manifest_would_be_too_large() -> None:
    first, sizes = 1, []
    while first <= ROWS:
        manifest = cut(Outbox(), first, ROWS).manifest
        sizes.append(len(manifest.to_json()))
        first = manifest.last + 1
    assert max(sizes) <= MOST_MANIFEST_BYTES == 1 << 20
    assert len(sizes) < 10
