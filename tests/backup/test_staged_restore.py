"""Restore of a backup that a running gateway stages, and its next start puts in place."""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import json
import os
import shutil
import socket
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from edge import durable
from edge.backup import BackupRefused, complete, confirm, is_staged, make, restore, stage, staging, undo, unstage
from edge.engine.requests import UpdateRequest
from edge.engine.start import open_engine
from edge.gateway import administration_tools
from edge.gateway.administration_tools import AdministrationTools
from edge.last_run import NAME as LAST_RUN
from edge.protocol.access import ACTIONS
from edge.protocol.errors import InvalidRequest, RequestTimeout
from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry, Rights
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


def crashes(monkeypatch, work):
    """Call `work` with each number of steps after which the power goes off, until it does not. Yields the numbers.

    `work` gets the function that may crash.
    """
    rename, write, rmtree, sync = Path.rename, durable.write, shutil.rmtree, durable.sync_directory
    for steps in itertools.count():
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

        def attempt(function) -> bool:
            """Return whether the power went off."""
            with monkeypatch.context() as patched:
                patched.setattr(Path, "rename", renamed)
                patched.setattr(staging.durable, "write", written)
                patched.setattr(staging.durable, "sync_directory", synced)
                patched.setattr(staging.shutil, "rmtree", removed)
                try:
                    function()
                except Crash:
                    return True
            return False

        if not work(steps, attempt):
            assert steps > 8
            return


def test_a_start_that_crashes_anywhere_is_completed_by_the_next_one(backup, tmp_path, monkeypatch):
    template = data_of(tmp_path / "template", 2)
    shutil.copytree(template, tmp_path / "restored")
    stage(io.BytesIO(backup), tmp_path / "restored", GIB)
    assert complete(tmp_path / "restored")
    confirm(tmp_path / "restored")
    expected = content(tmp_path / "restored")
    assert expected["note"] == b"1"
    assert {f"before-restore/{name}": text for name, text in content(template).items()}.items() <= expected.items()

    def work(steps: int, attempt) -> bool:
        place = tmp_path / str(steps)
        shutil.copytree(template, place)
        stage(io.BytesIO(backup), place, GIB)

        def start() -> None:
            complete(place)
            confirm(place)

        crashed = attempt(start)
        start()
        assert content(place) == expected
        assert not (place / ".restore").exists()
        shutil.rmtree(place)
        return crashed

    crashes(monkeypatch, work)


def test_a_return_that_crashes_anywhere_is_completed_by_the_next_start(backup, tmp_path, monkeypatch):
    template = data_of(tmp_path / "template", 2)

    def work(steps: int, attempt) -> bool:
        place = tmp_path / str(steps)
        shutil.copytree(template, place)
        stage(io.BytesIO(backup), place, GIB)
        complete(place)
        assert content(place)["note"] == b"1"
        crashed = attempt(lambda: undo(place, "its certificate is damaged"))
        complete(place)
        if (place / ".restore").exists():  # the power went off before the first step
            assert undo(place, "its certificate is damaged")
        assert content(place) == content(template)
        assert "its certificate is damaged" in (place / LAST_RUN).read_text()
        shutil.rmtree(place)
        return crashed

    crashes(monkeypatch, work)


@pytest.mark.parametrize("name", ["edge.sqlite3", "mappings", "note"])
@pytest.mark.parametrize("origin", ["", ".restore/new"])
def test_a_file_that_cannot_be_moved_takes_the_restore_back(backup, tmp_path, monkeypatch, name, origin):
    place = data_of(tmp_path / "data", 2)
    before = content(place)
    stage(io.BytesIO(backup), place, GIB)
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if path == place / origin / name and "returning" not in (place / ".restore/phase").read_text():
            raise PermissionError(13, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    assert complete(place)
    assert content(place) == before
    assert not is_staged(place)
    assert "Permission denied" in (place / LAST_RUN).read_text()


def test_a_gateway_that_never_becomes_ready_gets_its_data_back(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    before = content(place)
    stage(io.BytesIO(backup), place, GIB)
    for _ in range(3):
        assert complete(place)
        assert content(place)["note"] == b"1"
    assert complete(place)
    assert content(place) == before
    assert "did not become ready in 3 starts" in (place / LAST_RUN).read_text()
    assert not complete(place)


def test_a_restore_that_cannot_be_cleaned_up_does_not_prevent_the_start(backup, tmp_path, monkeypatch):
    place = data_of(tmp_path / "data", 2)
    stage(io.BytesIO(backup), place, GIB)
    complete(place)
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        if target == place / "before-restore":
            raise OSError(39, "Directory not empty", str(target))
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", renamed)
        with pytest.raises(OSError, match="not empty"):
            confirm(place)
        assert complete(place)
    assert content(place)["note"] == b"1"
    assert not is_staged(place)
    stage(io.BytesIO(backup), place, GIB)
    assert is_staged(place)


def test_a_full_disk_does_not_prevent_a_start_on_trial(backup, tmp_path, monkeypatch):
    place = data_of(tmp_path / "data", 2)
    stage(io.BytesIO(backup), place, GIB)
    complete(place)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging.durable, "write", full)
    assert complete(place)
    assert content(place)["note"] == b"1"


def test_files_of_another_user_are_named_before_any_change(backup, tmp_path, monkeypatch):
    place = data_of(tmp_path / "data", 2)
    before, access = content(place), os.access
    monkeypatch.setattr(staging.os, "access", lambda path, mode: Path(path).name != "mappings" and access(path, mode))
    with pytest.raises(BackupRefused, match=f"{place}/mappings belongs to another user.*chown"):
        stage(io.BytesIO(backup), place, GIB)
    assert content(place) == before
    assert not complete(place)


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


def test_the_last_staged_backup_counts_and_can_be_forgotten(backup, tmp_path):
    place, other = data_of(tmp_path / "data", 2), io.BytesIO()
    make(data_of(tmp_path / "other", 3), other)
    assert not unstage(place)
    stage(io.BytesIO(backup), place, GIB)
    assert unstage(place)
    assert not complete(place)
    stage(io.BytesIO(backup), place, GIB)
    stage(io.BytesIO(other.getvalue()), place, GIB)
    assert complete(place)
    assert content(place)["note"] == b"3"
    for refused in (lambda: stage(io.BytesIO(backup), place, GIB), lambda: unstage(place)):
        with pytest.raises(BackupRefused, match="start the gateway"):
            refused()
    confirm(place)
    stage(io.BytesIO(backup), place, GIB)


def test_a_killed_attempt_leaves_no_copy(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    (place / ".restore" / "new").mkdir(parents=True)
    (place / ".restore" / "new" / "edge.sqlite3").write_bytes(b"half")
    assert not complete(place)
    assert not (place / ".restore").exists()


def with_clients(directory: Path, *names: str) -> Path:
    """Register clients in a data directory."""
    database = ClientDatabase(directory)
    registry = ClientRegistry(database)
    for name in names:
        registry.allow(name, Rights(ACTIONS))
        registry.register(name)
    database.close()
    (directory / "tls").mkdir()
    (directory / "tls" / "note").write_text(" ".join(names))
    return directory


def clients_of(directory: Path) -> list[str]:
    database = ClientDatabase(directory)
    try:
        return [client.identity for client in ClientRegistry(database).all()]
    finally:
        database.close()


def test_clients_come_from_the_backup_or_stay(tmp_path):
    archive = io.BytesIO()
    make(with_clients(data_of(tmp_path / "backup", 1), "alice", "bob"), archive)
    for keep, expected in ((False, ["alice", "bob"]), (True, ["carol"])):
        place = with_clients(data_of(tmp_path / f"data-{keep}", 2), "carol")
        with pytest.raises(BackupRefused, match="does not have the client carol"):
            stage(io.BytesIO(archive.getvalue()), place, GIB, caller="carol")
        stage(io.BytesIO(archive.getvalue()), place, GIB, keep_clients=keep, caller="alice")
        complete(place)
        confirm(place)
        assert clients_of(place) == expected
        assert (place / "tls" / "note").read_text() == " ".join(expected)
        assert (place / "note").read_text() == "1"
        assert clients_of(place / "before-restore") == ["carol"]


def test_clients_that_a_gateway_could_not_use_are_refused(tmp_path):
    for number, damage in enumerate((b"no database", b"newer")):
        source = with_clients(data_of(tmp_path / f"backup-{number}", 1), "alice")
        if damage == b"newer":
            with closing(sqlite3.connect(source / "clients.sqlite3")) as connection:
                connection.execute("PRAGMA user_version = 99")
        archive = io.BytesIO()
        make(source, archive)
        text = archive.getvalue()
        if damage != b"newer":
            text = rewritten(text, "clients.sqlite3", damage)
        place = data_of(tmp_path / f"data-{number}", 2)
        with pytest.raises(BackupRefused, match=r"The backup cannot be used: clients\.sqlite3"):
            stage(io.BytesIO(text), place, GIB)
        with pytest.raises(BackupRefused, match=r"The backup cannot be used: clients\.sqlite3"):
            restore(io.BytesIO(text), tmp_path / f"new-{number}")
        assert not complete(place)


def rewritten(backup: bytes, name: str, text: bytes) -> bytes:
    """A backup with another content of a file, and a manifest that fits."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(backup), mode="r:gz") as old,
        tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == f"data/{name}":
                content = text
            elif member.name == "manifest.json":
                manifest = json.loads(content)
                for each in manifest["files"]:
                    if each["path"] == name:
                        each.update(size=len(text), sha256=hashlib.sha256(text).hexdigest())
                content = json.dumps(manifest).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return out.getvalue()


def test_a_backup_holds_no_staged_one_and_no_earlier_data(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    stage(io.BytesIO(backup), place, GIB)
    complete(place)
    confirm(place)
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
            assert "not a backup, or a damaged one" in refused.json()["error_description"]
            assert http.post("/api/restore", content=backup).status_code == 415
            assert holds(2)
            answer = http.post("/api/restore", content=backup, headers=gzip)
            assert answer.status_code == 202
            assert answer.json()["restored"].keys() == {"made", "bytes", "version"}

        def restored() -> bool:
            try:
                answer = httpx.get(f"{url}/query", params={"query": "ASK { <urn:s> <urn:p> 1 }"})
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and answer.json()["boolean"]

        wait_for(restored, what="the gateway has the restored data")
        assert httpx.get(f"{url}/health").json()["last_restart"]["reason"] == "restored"
        # The gateway answers queries a moment before it keeps the restored files.
        wait_for((place / "before-restore" / "note").exists, what="the old files")
        assert (place / "before-restore" / "note").read_text() == "2"
        wait_for(lambda: not (place / ".restore").exists(), what="the end of the restore")
    finally:
        process.stop()


def test_a_gateway_that_does_not_start_with_a_backup_continues_with_its_own_data(tmp_path):
    """The certificate in the backup is damaged, which the check of the archive does not notice."""
    secure = {**ALONE, "EDGE__SECURITY__ENABLED": "true", "PYTHONUNBUFFERED": "1"}
    ports = {f"EDGE__{name}": str(free_port()) for name in ("HTTP__PORT", "WS__PORT", "SECURITY__HTTPS_PORT")}
    place = data_of(tmp_path / "data", 2)
    process = GatewayProcess(place, {**secure, **ports, "EDGE__SECURITY__WSS_PORT": str(free_port())})
    process.start()
    archive = io.BytesIO()
    make(place, archive)
    process.stop()
    (place / "note").write_text("later")
    stage(io.BytesIO(rewritten(archive.getvalue(), "tls/server.pem", b"nothing")), place, GIB)
    url = process.start()["http"]
    try:
        assert (place / "note").read_text() == "later"
        assert "server.pem" in (place / LAST_RUN).read_text()
        assert httpx.get(f"{url}/health").status_code == 200
        assert not (place / ".restore").exists()
    finally:
        process.stop()


def test_an_upload_that_breaks_off_leaves_nothing_and_is_no_internal_error(backup, tmp_path):
    place = data_of(tmp_path / "data", 2)
    process = GatewayProcess(place, ALONE)
    url = urlsplit(process.start()["http"])
    try:
        with socket.create_connection((url.hostname, url.port)) as connection:
            head = (
                f"POST /api/restore HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/gzip\r\n"
                f"Content-Length: {len(backup)}\r\n\r\n"
            )
            connection.sendall(head.encode() + backup[:700])
            wait_for(lambda: (place / ".restore").exists(), what="the backup is received")
        wait_for(lambda: not (place / ".restore").exists(), what="the part of the backup is gone")
        gzip = {"Content-Type": "application/gzip"}
        wait_for(
            lambda: httpx.post(f"{url.geturl()}/api/restore", content=b"x", headers=gzip).status_code == 400,
            what="another restore may begin",
        )
        assert "internal error" not in httpx.get(f"{url.geturl()}/api/log").text
    finally:
        process.stop()


async def test_an_upload_that_stands_still_is_given_up(backup, tmp_path, monkeypatch):
    monkeypatch.setattr(administration_tools, "_SILENCE", 0.2)
    place = data_of(tmp_path / "data", 2)

    async def silent():
        yield backup[:700]
        await asyncio.Event().wait()

    tools = AdministrationTools(place)
    with pytest.raises(RequestTimeout, match="stood still"):
        await tools.restore(silent(), keep_clients=False, caller="")
    assert not (place / ".restore").exists()

    async def nested():
        yield with_manifest(b"[" * 200_000)

    with pytest.raises(InvalidRequest, match="its manifest cannot be read"):
        await tools.restore(nested(), keep_clients=False, caller="")


def with_manifest(text: bytes) -> bytes:
    """An archive with nothing but a manifest."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return out.getvalue()


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
