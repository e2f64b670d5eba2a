"""The landing zone, and the segments that a round selects. Without Spark."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from history_data import readings
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_sender import EPOCH, Sender, rows_of

from spark_offload.errors import LandingRefused
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.segment_selection import gap, look

BOX = OutboxEpoch("box-1", EPOCH)
OBSERVATIONS = readings("a1", range(100))


@pytest.fixture
def sender(tmp_path: Path) -> Sender:
    return Sender(tmp_path, OBSERVATIONS)


def ranges(found: list) -> list[tuple[int, int]]:
    """Return the selected ranges: after which number, up to which number."""
    return [(one.after, one.segment.last) for one in found]


def test_a_landing_zone_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LandingRefused, match="create or mount it"):
        LandingZone(tmp_path / "nowhere")


def test_only_segments_with_a_manifest_and_valid_names_exist(tmp_path: Path, sender: Sender) -> None:
    sender.send(1, 10)
    rows_of(sender.send(11, 20)).with_suffix("").touch()
    sender.send(21, 30).unlink()
    (sender.folder / ".000000000031-000000000040.json.part").touch()
    (sender.folder / "notes.json").touch()
    (tmp_path / "box-1" / "not-an-epoch").mkdir()
    (tmp_path / ".uploads" / EPOCH).mkdir(parents=True)
    landing = LandingZone(tmp_path)
    assert list(landing.outboxes()) == [BOX]
    assert [(one.first, one.last) for one in landing.segments(BOX)] == [(1, 10), (11, 20)]


def test_unordered_and_overlapping_segments_are_taken_once(tmp_path: Path, sender: Sender) -> None:
    for first, last in ((21, 30), (1, 10), (5, 25), (26, 28), (11, 20), (50, 60)):
        sender.send(first, last)
    found = look(LandingZone(tmp_path), {}, 1000)
    assert ranges(found.taken) == [(0, 10), (10, 25), (25, 30)]
    assert [(one.first, one.last, one.held) for one in found.gaps] == [(31, 49, 1)]
    assert not found.more
    assert "observations 31 to 49 are missing; 1 later segments have waited" in str(found.gaps[0])


def test_rows_go_before_tombstones(tmp_path: Path, sender: Sender) -> None:
    sender.drop(1, 30)
    sender.send(1, 20)
    assert ranges(look(LandingZone(tmp_path), {}, 1000).taken) == [(0, 20), (20, 30)]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: rows_of(path).write_bytes(rows_of(path).read_bytes()[:-3]), "bytes, its manifest says"),
        (lambda path: rows_of(path).write_bytes(b"\0" * rows_of(path).stat().st_size), "checksum"),
        (lambda path: rows_of(path).unlink(), "its rows are missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "its manifest cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"first":11', b'"first":12')), "manifest is that of"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"box-1", b"box-2")), "manifest is that of"),
    ],
)
def test_damaged_segments_are_quarantined_and_accepted_when_sent_again(
    tmp_path: Path, sender: Sender, harm, reason: str
) -> None:
    sender.send(1, 10)
    harm(sender.send(11, 20))
    sender.send(21, 30)
    landing = LandingZone(tmp_path)
    found = look(landing, {}, 1000)
    assert ranges(found.taken) == [(0, 10)]
    assert [one.first for one in found.gaps] == [11]
    (put_aside,) = landing.quarantined()
    assert put_aside == found.damaged[0]
    assert reason in put_aside.reason
    assert not list(sender.folder.glob("000000000011-*"))
    sender.send(11, 20)
    assert ranges(look(landing, {BOX: 10}, 1000).taken) == [(10, 20), (20, 30)]


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def state(path: Path, **members: object) -> None:
    """Change members of a manifest."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **members}))


def rewrite(manifest: Path, packed: bytes) -> None:
    """Replace the rows of a segment, with the checksum of the new ones."""
    rows_of(manifest).write_bytes(packed)
    state(manifest, size=len(packed), sha256=hashlib.sha256(packed).hexdigest())


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: path.write_bytes(b"[" * 200_000), "recursion limit"),
        (lambda path: path.write_bytes(b" " * (9 << 20)), "the most are"),
        (lambda path: state(path, contexts={"99999999999": {}}), "contexts.99999999999"),
        (lambda path: state(path, replayed="yes"), "replayed: "),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":1e400')), "schema: "),
        (lambda path: path.rename(path.with_name("000000000001-1000000000000.json")), "manifest is that of"),
        (lambda path: replace_by_directory(rows_of(path)), "is not a regular file"),
        (lambda path: replace_by_pipe(rows_of(path)), "is not a regular file"),
        (lambda path: rewrite(path, rows_of(path).read_bytes() + b"\0"), "other data after the rows"),
        (lambda path: rewrite(path, gzip.compress(b"1" * (33 << 20))), "larger than"),
        (lambda path: rewrite(path, gzip.compress(b"1\t1\t0\n" * 10)), "row 2 begins with"),
    ],
)
def test_one_gateway_never_stops_the_others(tmp_path: Path, sender: Sender, harm, reason: str) -> None:
    """Whatever one writes, it is put aside in the same round that takes the segments of the others."""
    others = [Sender(tmp_path, OBSERVATIONS, gateway=name) for name in ("box-0", "box-2")]
    harm(sender.send(1, 10))
    for other in others:
        other.send(1, 10)
    landing = LandingZone(tmp_path)
    found = look(landing, {}, 1000)
    assert [one.segment.outbox.gateway for one in found.taken] == ["box-0", "box-2"]
    assert [reason in one.reason for one in found.damaged] == [True]
    assert landing.quarantined() == found.damaged
    assert found.problems == []


def test_segments_of_a_newer_schema_take_no_room_of_others(tmp_path: Path, sender: Sender) -> None:
    for first in range(1, 100, 10):
        state(sender.send(first, first + 9), schema=2)
    other = Sender(tmp_path, OBSERVATIONS, gateway="box-2")
    other.send(1, 10)
    found = look(LandingZone(tmp_path), {}, 10)
    assert [one.segment.outbox.gateway for one in found.taken] == ["box-2"]


def test_outboxes_take_turns(tmp_path: Path, sender: Sender) -> None:
    for first in range(1, 100, 10):
        sender.send(first, first + 9)
    Sender(tmp_path, OBSERVATIONS, gateway="box-2").send(1, 10)
    found = look(LandingZone(tmp_path), {}, 30)
    taken = [(one.segment.outbox.gateway, one.segment.last) for one in found.taken]
    assert taken == [("box-1", 10), ("box-1", 20), ("box-2", 10)]
    assert found.more


def test_a_segment_that_cannot_be_put_aside_is_reported(tmp_path: Path, sender: Sender) -> None:
    (tmp_path / "quarantine").touch()
    rows_of(sender.send(1, 10)).unlink()
    Sender(tmp_path, OBSERVATIONS, gateway="box-2").send(1, 10)
    found = look(LandingZone(tmp_path), {}, 1000)
    assert [one.segment.outbox.gateway for one in found.taken] == ["box-2"]
    (problem,) = found.problems
    assert problem.startswith(f"box-1/{EPOCH}/000000000001-000000000010 is damaged (its rows are missing) and cannot")


def test_an_acknowledgement_that_cannot_be_written_stops_no_other(tmp_path: Path, sender: Sender) -> None:
    other = Sender(tmp_path, OBSERVATIONS, gateway="box-2")
    sender.send(1, 10)
    other.send(1, 10)
    (tmp_path / "box-1" / "ack.json").mkdir()
    landing = LandingZone(tmp_path)
    assert landing.acknowledged("box-1") == {}
    failed = landing.acknowledge({BOX: 10, OutboxEpoch("box-2", EPOCH): 10}, 1)
    assert [path for path, _ in failed] == [tmp_path / "box-1" / "ack.json"]
    assert other.acknowledged == 10


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b'{"acknowledged":{"a":{"last":1e400,"table_version":1}}}', b"\xff"]
)
def test_damaged_acknowledgements_are_written_again(tmp_path: Path, sender: Sender, content: bytes) -> None:
    sender.send(1, 10)
    (tmp_path / "box-1" / "ack.json").write_bytes(content)
    assert LandingZone(tmp_path).acknowledge({BOX: 10}, 1) == []
    assert sender.acknowledged == 10


def test_observations_of_a_damaged_segment_may_arrive_in_another(tmp_path: Path, sender: Sender) -> None:
    sender.send(1, 10)
    rows_of(sender.send(1, 20)).unlink()
    found = look(LandingZone(tmp_path), {}, 1000)
    assert ranges(found.taken) == [(0, 10)]
    assert found.gaps == []


def test_a_newer_schema_is_left_where_it_is(tmp_path: Path, sender: Sender) -> None:
    path = sender.send(1, 10)
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2'))
    sender.send(11, 20)
    found = look(LandingZone(tmp_path), {}, 1000)
    assert (found.taken, found.gaps, found.damaged) == ([], [], [])
    assert [one.first for one in found.newer] == [1]
    assert path.exists()


def test_a_round_is_bounded_and_a_gap_blocks_no_other_gateway(tmp_path: Path, sender: Sender) -> None:
    other = Sender(tmp_path, OBSERVATIONS, gateway="box-2")
    for first in range(11, 100, 10):
        sender.send(first, first + 9)
    for first in range(1, 40, 10):
        other.send(first, first + 9)
    found = look(LandingZone(tmp_path), {}, 15)
    assert ranges(found.taken) == [(0, 10), (10, 20)]
    assert found.more
    assert [one.outbox.gateway for one in found.gaps] == ["box-1"]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8), st.booleans()), max_size=12),
    st.integers(0, 12),
    st.integers(1, 40),
)
@settings(max_examples=60)
def test_each_observation_is_taken_once_up_to_the_first_gap(
    tmp_path_factory, segments, position: int, most: int
) -> None:
    landing = tmp_path_factory.mktemp("landing")
    sender = Sender(landing, OBSERVATIONS)
    for first, length, tombstone in segments:
        (sender.drop if tombstone else sender.send)(first, first + length - 1)
    there = {seq for first, length, _ in segments for seq in range(first, first + length)}
    reached = position
    taken: list[int] = []
    while True:
        if not list(landing.iterdir()):
            break
        found = look(LandingZone(landing), {BOX: reached}, most)
        for one in found.taken:
            numbers = range(one.after + 1, one.segment.last + 1)
            assert set(numbers) <= set(range(one.segment.first, one.segment.last + 1))
            taken += numbers
        reached = found.positions({BOX: reached})[BOX]
        if not found.more:
            break
        assert found.taken  # otherwise it would run forever
    expected = position
    while expected + 1 in there:
        expected += 1
    assert taken == list(range(position + 1, expected + 1))
    behind = {seq for seq in there if seq > expected}
    missing = gap(LandingZone(landing).segments(BOX), expected) if there else None
    assert (missing and (missing.first, missing.last)) == ((expected + 1, min(behind) - 1) if behind else None)


def test_acknowledgements_grow_and_are_rebuilt(tmp_path: Path, sender: Sender) -> None:
    landing = LandingZone(tmp_path)
    sender.send(1, 10)
    landing.acknowledge({BOX: 10, OutboxEpoch("elsewhere", EPOCH): 5}, 3)
    assert json.loads((tmp_path / "box-1" / "ack.json").read_bytes()) == {
        "schema": 1,
        "acknowledged": {EPOCH: {"last": 10, "table_version": 3}},
    }
    landing.acknowledge({BOX: 7, OutboxEpoch("box-1", "0" * 16): 1}, 4)
    assert landing.acknowledged("box-1") == {
        "0" * 16: {"last": 1, "table_version": 4},
        EPOCH: {"last": 10, "table_version": 3},
    }
    (tmp_path / "box-1" / "ack.json").write_text("{damaged")
    assert landing.acknowledged("box-1") == {}
    landing.acknowledge({BOX: 10}, 5)
    assert landing.acknowledged("box-1") == {EPOCH: {"last": 10, "table_version": 5}}
    assert {path.name for path in tmp_path.iterdir()} == {"box-1"}


def test_acknowledgements_that_cannot_be_read_do_not_decrease(
    tmp_path: Path, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transient error of a network file system is not taken for an empty file, and not remembered."""
    sender.send(1, 10)
    LandingZone(tmp_path).acknowledge({BOX: 10}, 3)
    landing = LandingZone(tmp_path)

    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("spark_offload.landing._content", failing)
        assert landing.acknowledged("box-1") == {}
        assert [path.name for path, _ in landing.acknowledge({BOX: 7}, 4)] == ["ack.json"]
    assert sender.acknowledged == 10
    assert landing.acknowledged("box-1") == {EPOCH: {"last": 10, "table_version": 3}}


def test_ingested_segments_are_removed_later(tmp_path: Path, sender: Sender) -> None:
    old, fresh, ahead = sender.send(1, 10), sender.send(11, 20), sender.send(21, 30)
    before = time.time() - 3600
    for path in (old, rows_of(old), ahead, rows_of(ahead)):
        os.utime(path, (before, before))
    assert LandingZone(tmp_path).clean({BOX: 20}, keep=600) == 2
    assert sorted(path.name for path in sender.folder.glob("*.json")) == [fresh.name, ahead.name]
    assert not rows_of(old).exists()
