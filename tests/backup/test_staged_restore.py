"""Restore of a backup that a running gateway stages, and its next start puts in place."""

from __future__ import annotations

import io
import itertools
import shutil
import socket
from pathlib import Path

import httpx
import pytest

from edge import durable
from edge.backup import BackupRefused, complete, make, stage, staging
from edge.engine.requests import UpdateRequest
from edge.engine.start import open_engine
from edge.last_run import NAME as LAST_RUN
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

ALONE = {"EDGE__MQTT__ENABLED": "false", "EDGE__HOST__ENABLED": "false"}
GIB = 1024**3


def data_of(directory: Path, number: int) -> Path:
    """A data directory with one triple and some files."""
    engine = open_engine(directory)
    engine.update([UpdateRequest(f"INSERT DATA {{ <urn:s> <urn:p> {number} }}")]).result(20)
    assert engine.close()
    (directory / "mappings").mkdir()
    (directory / "mappings" / f"{number}.toml").write_text(str(number))
    (directory / "note").write_text(str(number))
    return directory


def content(directory: Path) -> dict[str, bytes]:
    """The files that an operator has put there, and the journal."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock" and not path.name.endswith(("-wal", "-shm")) and path.name != LAST_RUN
    }


@pytest.fixture(scope="module")
def backup(tmp_path_factory) -> bytes:
    archive = io.BytesIO()
    make(data_of(tmp_path_factory.mktemp("backup") / "data", 1), archive)
    return archive.getvalue()


class Crash(BaseException):
    """The power goes off."""


def test_a_start_that_crashes_anywhere_is_completed_by_the_next_one(backup, tmp_path, monkeypatch):
    template = data_of(tmp_path / "template", 2)
    shutil.copytree(template, tmp_path / "restored")
    stage(io.BytesIO(backup), tmp_path / "restored", GIB)
    assert complete(tmp_path / "restored")
    expected = content(tmp_path / "restored")
    assert expected["note"] == b"1"
    assert {f"before-restore/{name}": text for name, text in content(template).items()}.items() <= expected.items()
    rename, write, rmtree, sync = Path.rename, durable.write, shutil.rmtree, durable.sync_directory
    for steps in itertools.count():
        place = tmp_path / str(steps)
        shutil.copytree(template, place)
        stage(io.BytesIO(backup), place, GIB)
        left = steps

        def step() -> None:
            nonlocal left
            if not left:
                raise Crash
            left -= 1

        def renamed(path: Path, target: Path) -> Path:
            step()
            return rename(path, target)

        def written(file: Path, text: bytes, **options: object) -> None:
            step()
            write(file, text, **options)

        def removed(path: Path, **options: object) -> None:
            step()
            rmtree(path, **options)

        def synced(directory: Path) -> None:
            step()
            sync(directory)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", renamed)
            patched.setattr(staging.durable, "write", written)
            patched.setattr(staging.durable, "sync_directory", synced)
            patched.setattr(staging.shutil, "rmtree", removed)
            try:
                complete(place)
            except Crash:
                crashed = True
            else:
                crashed = False
        assert complete(place) is crashed
        assert content(place) == expected
        assert not (place / ".restore").exists()
        shutil.rmtree(place)
        if not crashed:
            break
    assert steps > 8


@pytest.mark.parametrize("most", [0, 1000])
def test_a_backup_that_the_disk_has_no_room_for_is_refused(backup, tmp_path, most):
    place = data_of(tmp_path / "data", 2)
    before = content(place)
    with pytest.raises(BackupRefused, match="the disk has no room"):
        stage(io.BytesIO(backup), place, most)
    assert content(place) == before
    assert not complete(place)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-200], lambda text: text[: len(text) // 2], lambda text: b"no backup"]
)
def test_a_damaged_backup_changes_nothing(backup, tmp_path, damage):
    place = data_of(tmp_path / "data", 2)
    before = content(place)
    with pytest.raises(BackupRefused):
        stage(io.BytesIO(damage(backup)), place, GIB)
    assert content(place) == before
    assert not complete(place)


def test_a_second_backup_waits_for_the_restart(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    stage(io.BytesIO(backup), place, GIB)
    with pytest.raises(BackupRefused, match="waits for the restart"):
        stage(io.BytesIO(backup), place, GIB)
    complete(place)
    stage(io.BytesIO(backup), place, GIB)


def test_a_backup_holds_no_staged_one_and_no_earlier_data(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    stage(io.BytesIO(backup), place, GIB)
    complete(place)
    stage(io.BytesIO(backup), place, GIB)
    names = {entry.path for entry in make(place, io.BytesIO()).files}
    assert not [name for name in names if "restore" in name]
    assert "note" in names


def test_a_running_gateway_restores_a_backup_and_starts_again(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    ports = {"EDGE__HTTP__PORT": str(free_port()), "EDGE__WS__PORT": str(free_port())}
    # Another variable than a setting: no fork of this process, whose command it would repeat.
    process = GatewayProcess(place, {**ALONE, **ports, "PYTHONUNBUFFERED": "1"})
    url = process.start()["http"]
    try:
        with httpx.Client(base_url=url, timeout=30) as http:

            def holds(number: int) -> bool:
                answer = http.get("/query", params={"query": f"ASK {{ <urn:s> <urn:p> {number} }}"})
                return answer.status_code == 200 and answer.json()["boolean"]

            assert holds(2)
            gzip = {"Content-Type": "application/gzip"}
            refused = http.post("/api/restore", content=b"no backup", headers=gzip)
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
            assert "damaged, or none" in refused.json()["error_description"]
            assert http.post("/api/restore", content=backup).status_code == 415
            assert holds(2)
            answer = http.post("/api/restore", content=backup, headers=gzip)
            assert (answer.status_code, "is put in place" in answer.json()["restored"]["text"]) == (202, True)

        def restored() -> bool:
            try:
                answer = httpx.get(f"{url}/query", params={"query": "ASK { <urn:s> <urn:p> 1 }"})
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and answer.json()["boolean"]

        wait_for(restored, what="the gateway has the restored data")
        assert httpx.get(f"{url}/health").json()["last_restart"]["reason"] == "restored"
        assert (place / "before-restore" / "note").read_text() == "2"
    finally:
        process.stop()


def test_under_systemd_the_process_ends_and_the_next_start_restores(backup, tmp_path):
    """Its service has Restart=always. A new program in the same process would not be one that systemd waits for."""
    place = data_of(tmp_path / "data", 2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        process = GatewayProcess(place, {**ALONE, "NOTIFY_SOCKET": str(tmp_path / "notify")})
        url = process.start()["http"]
        httpx.post(
            f"{url}/api/restore", content=backup, headers={"Content-Type": "application/gzip"}
        ).raise_for_status()
        assert process.wait(30) == 0
    process = GatewayProcess(place, ALONE)
    url = process.start()["http"]
    answer = httpx.get(f"{url}/query", params={"query": "ASK { <urn:s> <urn:p> 1 }"})
    process.stop()
    assert answer.json()["boolean"] is True
