"""Segments whose contexts need more than a manifest may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from edge.outbox.observation import ObservationContext
from edge.outbox.segment import MANIFEST, MOST_MANIFEST_BYTES
from edge.outbox.segmenter import cut
from spark_offload.uploads import Name, Uploads, UploadTooLarge

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


class LongContext(Outbox):
    """Observations with the same context, which alone exceeds the size of a manifest."""

    def rows(self, first: int, limit: int) -> Iterable[tuple[int, int, str]]:
        return [(seq, 1, f"{seq}\t1") for seq in range(first, first + limit)]

    def contexts(self, ids: Iterable[int]) -> Mapping[int, ObservationContext]:
        return {number: ObservationContext(series="urn:x:" + "s" * (2 << 20)) for number in ids}


def test_a_single_row_may_have_a_longer_manifest(tmp_path: Path) -> None:
    """Earlier versions stored such contexts, which no smaller segment could have."""
    manifest = cut(LongContext(), 1, 8).manifest
    assert (manifest.first, manifest.last) == (1, 1)
    uploads = Uploads(tmp_path, largest=64 << 20, most=1 << 30)
    size = len(manifest.to_json())
    name = Name(manifest.gateway, manifest.epoch, manifest.stem + MANIFEST)
    uploads.check_size(name, size)
    with pytest.raises(UploadTooLarge):
        uploads.check_size(name, 9 << 20)
    with pytest.raises(UploadTooLarge):
        uploads.check_size(name._replace(file=f"000000000001-000000000002{MANIFEST}"), size)
    uploads.close()
