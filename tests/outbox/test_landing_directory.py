"""A directory as landing zone, and its possible faults."""

import errno
import os

import pytest
from memory_outbox import EPOCH, MemoryOutbox, Zone

from edge.outbox.directory import DirectoryLanding
from edge.outbox.landing import KnownOutbox, LandingFailed
from edge.outbox.segmenter import cut


@pytest.fixture
def zone(tmp_path):
    return Zone(tmp_path / "landing")


@pytest.fixture
def landing(zone):
    zone.path.mkdir()
    return DirectoryLanding(zone.path)


@pytest.fixture
def segment():
    return cut(MemoryOutbox(9), 1, 9)


def test_empty_landing_zone_has_no_segments(landing):
    assert landing.look("attic", EPOCH) == KnownOutbox(0, ())


def test_only_segments_with_a_manifest_are_known(landing, zone, segment):
    landing.put(segment)
    landing.put(cut(MemoryOutbox(30), 21, 30))
    zone.remove(21)
    landing.put(cut(MemoryOutbox(12), 10, 12))
    zone.rows_of(zone.manifests()[1]).with_suffix("").with_suffix(".json").unlink()
    for name in ("ack.json", "notes.json", "000000000031-000000000040.json.bak", ".000000000041-000000000050.json"):
        (zone.folder / name).write_text("{}")
    (zone.folder / "000000099001-000000099050.json").mkdir()
    (zone.folder / "000000088001-000000088050.json").write_text("no manifest, and no rows beside it")
    assert landing.look("attic", EPOCH) == KnownOutbox(0, ((1, 9),))
    assert landing.look("attic", EPOCH[::-1]) == KnownOutbox(0, ())


def test_a_missing_landing_zone_is_not_created(tmp_path, segment):
    landing = DirectoryLanding(tmp_path / "mount")
    for attempt in (lambda: landing.look("attic", EPOCH), lambda: landing.put(segment)):
        with pytest.raises(LandingFailed, match="mount"):
            attempt()
    assert not (tmp_path / "mount").exists()
    (tmp_path / "mount").write_text("a file")
    with pytest.raises(LandingFailed, match="mount"):
        landing.look("attic", EPOCH)


def test_a_file_in_place_of_a_folder_is_reported(landing, zone, segment):
    (zone.path / "attic").write_text("what is this")
    with pytest.raises(LandingFailed, match="attic"):
        landing.put(segment)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.ESTALE, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_when_writing_fails_no_manifest_is_there_and_the_next_attempt_works(landing, zone, segment, call, number):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, _failing(number))
        with pytest.raises(LandingFailed, match=os.strerror(number)):
            landing.put(segment)
    assert zone.ranges() == []
    assert landing.look("attic", EPOCH).held == ()
    landing.put(segment)
    assert zone.ranges() == [(1, 9)]
    assert not list(zone.folder.glob(".*"))


def _failing(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def test_drafts_of_an_attempt_that_was_cut_off_are_removed(landing, zone, segment):
    zone.folder.mkdir(parents=True)
    (zone.folder / ".000000000001-000000000005.tsv.gz").write_text("half")
    landing.put(segment)
    assert zone.ranges() == [(1, 9)]
    assert not list(zone.folder.glob(".*"))


def test_a_file_system_that_synchronises_no_directories_will_do(landing, zone, segment, monkeypatch):
    synchronise = os.fsync

    def files_alone(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - as the kernel follows a link
            raise OSError(errno.EINVAL, "Invalid argument")
        synchronise(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    landing.put(segment)
    assert zone.ranges() == [(1, 9)]


def test_rows_without_a_manifest_are_put_in_place_again(landing, zone, segment):
    landing.put(segment)
    (zone.folder / f"{segment.manifest.stem}.json").unlink()
    zone.rows_of(segment.manifest).write_bytes(b"half of it")
    landing.put(segment)
    assert zone.ranges() == [(1, 9)]
