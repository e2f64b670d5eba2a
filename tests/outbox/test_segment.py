"""Segments: the written data can be read again, and damaged data is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.outbox import observation, segment
from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.segment import SegmentDamaged, SegmentManifest, SegmentNewer

EPOCH = "0123456789abcdef"
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
CELLS = st.builds(Cells, st.integers(0, 2**50), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
PRESENT = st.from_regex(r"http://[a-z]{1,5}/[a-z0-9]{0,5}", fullmatch=True)
IRIS = st.none() | PRESENT
CONTEXTS = st.builds(
    ObservationContext,
    series=PRESENT,
    topic=TEXTS,
    feature=IRIS,
    property=IRIS,
    sensor=IRIS,
    unit=IRIS,
    datatype=st.just(observation.XSD + "decimal"),
    time_datatype=st.just(observation.DATE_TIME_STAMP),
    graph=IRIS,
)


@given(st.lists(CELLS, max_size=20))
def test_rows_are_read_back_unchanged(rows: list[Cells]) -> None:
    packed = segment.packed(segment.line(number, 7, cells) for number, cells in enumerate(rows, 5))
    assert list(segment.unpacked(packed)) == [(number, 7, cells) for number, cells in enumerate(rows, 5)]


def test_a_backslash_without_an_escape_is_kept() -> None:
    """The validation accepts such rows, and Spark reads them so."""
    assert list(segment.unpacked(segment.packed(["5\t7\t0\ta\\xb\\tc"]))) == [(5, 7, Cells(0, "a\\xb\tc"))]


@given(st.dictionaries(st.integers(1, 99), CONTEXTS, max_size=3), st.booleans())
def test_manifests_are_read_back_unchanged(contexts: dict[int, ObservationContext], replayed: bool) -> None:
    manifest = SegmentManifest("box-1", EPOCH, 1, 20, 5, 6, 7, "0" * 64, contexts, replayed)
    assert SegmentManifest.from_json(manifest.to_json()) == manifest


@given(CONTEXTS, st.integers(0, 2**50), st.text(st.characters(exclude_categories=["Cs"])))
def test_quads_are_canonical(context: ObservationContext, time: int, value: str) -> None:
    lines = list(observation.quads(context, Cells(time, value), EPOCH, 3))
    quads = [next(iter(ox.parse(line, format=ox.RdfFormat.N_QUADS))) for line in lines]
    assert [f"{quad} ." for quad in quads] == lines
    assert len(set(lines)) == len(lines)


def manifest_with(**members: object) -> bytes:
    """Return a manifest with other members than the gateway writes."""
    return json.dumps({**json.loads(SegmentManifest("a", EPOCH, 1, 2, 3, 4).to_json()), **members}).encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"schema":1,"contexts":{}}', "cannot be read"),
        (replace(SegmentManifest("a", EPOCH, 1, 2, 3, 4), first=0).to_json(), "first: "),
        (SegmentManifest("../a", EPOCH, 1, 2, 3, 4).to_json(), "gateway: "),
        (SegmentManifest("a", "E", 1, 2, 3, 4).to_json(), "epoch: "),
        (SegmentManifest("a", EPOCH, 1, 2, 3, 4, sha256="x").to_json(), "sha256: "),
        (SegmentManifest("a", EPOCH, 1, 2, 3, 4, size="x").to_json(), "size: "),  # type: ignore[arg-type]
        (SegmentManifest("a", EPOCH, 3, 2, 3, 4).to_json(), "a segment has at most"),
        (SegmentManifest("a", EPOCH, 1, 10**17, 3, 4, reason="full").to_json(), "a segment has at most"),
        (SegmentManifest("a", EPOCH, 1, 10**18, 3, 4).to_json(), "last: "),
        (SegmentManifest("a", EPOCH, 1, 2, 3, 1 << 63).to_json(), "end: "),
        (SegmentManifest("a", EPOCH, 1, 2, 3, 4, replayed="yes").to_json(), "replayed: "),  # type: ignore[arg-type]
        (SegmentManifest("a", EPOCH, 1, 2, 3, 4, contexts={10**10: ObservationContext()}).to_json(), r"contexts\."),
        (manifest_with(contexts={"1_0": {}}), r"contexts\.1_0"),
        (manifest_with(contexts={"1": {"unit": 5}}), r"contexts\.1\.unit: "),
        (manifest_with(contexts={"1": {"colour": "red"}}), r"contexts\.1\.colour: "),
        (manifest_with(schema=True), "schema: "),
        (manifest_with(schema="1"), "schema: "),
        (b'{"schema":1e400}', "schema: "),
        (b'{"contexts":' + b"[" * 200_000, "recursion limit"),
        (b" " * (8 << 20) + b"{}", "the most are"),
    ],
)
def test_a_damaged_manifest_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(SegmentDamaged, match=reason):
        SegmentManifest.from_json(text)


def test_a_newer_schema_is_not_damage() -> None:
    with pytest.raises(SegmentNewer, match="update it"):
        SegmentManifest.from_json(b'{"schema":2,"contexts":{},"colour":"red"}')


def test_damaged_rows_are_refused() -> None:
    rows = segment.packed(["1\t1\t5\t22.5"])
    manifest = SegmentManifest("a", EPOCH, 1, 1, 5, 5, len(rows), hashlib.sha256(rows).hexdigest())
    manifest.check(rows)
    with pytest.raises(SegmentDamaged, match="bytes"):
        manifest.check(rows[:-1])
    with pytest.raises(SegmentDamaged, match="checksum"):
        manifest.check(rows[:-1] + b"x")
    with pytest.raises(SegmentDamaged, match="cannot be read"):
        list(segment.unpacked(rows[:-9]))


def test_times_are_written_as_the_live_graph_writes_them() -> None:
    second = 1_700_000_000 * 1_000_000
    assert observation.time_text(second) == "2023-11-14T22:13:20Z"
    assert observation.time_text(second + 120_000) == "2023-11-14T22:13:20.120Z"
    assert observation.time_text(second + 1) == "2023-11-14T22:13:20.000001Z"
