"""Which directories and files of a landing zone are read: those of other gateways cost nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from history_data import readings
from ingest_sender import EPOCH, Sender

from spark_offload import landing_size
from spark_offload.landing import LandingZone, OutboxEpoch
from spark_offload.landing_size import LandingSize, size_of
from spark_offload.uploads import Name, Uploads
from tests.support.waiting import wait_for

GATEWAYS = 30
OBSERVATIONS = readings("a1", range(10))
_counted: list[list[str]] = []


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if _counted and event in ("open", "os.scandir", "os.listdir"):
        _counted[-1].append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else "")


sys.addaudithook(_count)


@contextmanager
def accesses(folder: Path) -> Iterator[list[str]]:
    """Yield the files opened and the directories listed in the block, relative to a directory."""
    found: list[str] = []
    _counted.append([])
    yield found
    found += [os.path.relpath(path, folder) for path in _counted.pop() if path.startswith(str(folder))]


def outbox(number: int) -> OutboxEpoch:
    return OutboxEpoch(f"box-{number}", EPOCH)


@pytest.fixture
def landing(tmp_path: Path) -> LandingZone:
    """A landing zone with a segment of each gateway, which has acknowledged five of its observations."""
    for number in range(GATEWAYS):
        Sender(tmp_path, OBSERVATIONS, gateway=f"box-{number}").send(1, 10)
    made = LandingZone(tmp_path)
    made.acknowledge({outbox(number): 5 for number in range(GATEWAYS)}, 1)
    return made


def test_the_state_of_a_gateway_is_read_from_its_own_directory(landing: LandingZone) -> None:
    uploads = Uploads(landing.folder, largest=1 << 20, most=1 << 30)
    with accesses(landing.folder) as read:
        assert uploads.held("box-7") == {EPOCH: [(1, 10)]}
        assert uploads.acknowledged("box-7")[EPOCH]["last"] == 5
    assert sorted(read) == ["box-7", f"box-7/{EPOCH}", "box-7/ack.json"]
    assert uploads.held("nobody") == uploads.acknowledged("nobody") == {}
    uploads.close()


def test_a_part_of_a_file_is_stored_without_a_scan(landing: LandingZone) -> None:
    uploads = Uploads(landing.folder, largest=1 << 20, most=1 << 30)
    name = Name("box-7", EPOCH, "000000000011-000000000020.tsv.gz")
    with accesses(landing.folder) as read:
        uploads.append(name, 0, b"part")
        assert uploads.ready()
    assert read == [f".uploads/box-7.{EPOCH}.{name.file}"]
    uploads.close()


def test_an_acknowledgement_reads_and_writes_that_of_its_gateway(landing: LandingZone) -> None:
    with accesses(landing.folder) as read:
        landing.acknowledge({outbox(7): 10}, 2)
    assert {Path(path).parts[0] for path in read} == {"box-7"}


def test_acknowledgements_that_did_not_change_are_not_read_again(landing: LandingZone) -> None:
    """A round begins with all of them."""
    positions = {outbox(number): 5 for number in range(GATEWAYS)}
    landing.acknowledge(positions, 2)
    (landing.folder / "box-3" / "ack.json").write_text("{damaged")
    with accesses(landing.folder) as read:
        landing.acknowledge(positions, 2)
    assert {Path(path).parts[0] for path in read} == {"box-3"}
    assert LandingZone(landing.folder).acknowledged("box-3")[EPOCH]["last"] == 5


def test_directories_are_searched_for_old_files_only_now_and_then(landing: LandingZone) -> None:
    positions = {outbox(number): 10 for number in range(GATEWAYS)}
    landing.clean(positions, keep=1000)
    with accesses(landing.folder) as read:
        landing.clean(positions, keep=1000)
    assert read == []
    assert landing.clean(positions, keep=0) == 2 * GATEWAYS


def test_the_size_is_measured_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(b"x" * 1000)
    (tmp_path / "deep" / "link").symlink_to(tmp_path)
    (tmp_path / "pipe").symlink_to("nowhere")
    size = LandingSize(tmp_path)
    before = size.current()
    assert before == size_of(tmp_path) >= 1000
    size.add(500)
    assert size.current() == before + 500
    (tmp_path / "deep" / "er" / "file").unlink()
    monkeypatch.setattr(landing_size, "MEASURED", 0.0)
    size = LandingSize(tmp_path)
    (tmp_path / "new").write_bytes(b"y" * 300)
    wait_for(lambda: size.current() == size_of(tmp_path), what="a new measurement")


def test_a_measurement_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = LandingSize(tmp_path)
    with monkeypatch.context() as patch:
        patch.delattr(landing_size, "size_of")
        with pytest.raises(NameError):
            size._measure()
    monkeypatch.setattr(size, "_due", 0.0)
    (tmp_path / "new").write_bytes(b"y" * 300)
    wait_for(lambda: size.current() == size_of(tmp_path), what="a new measurement")
