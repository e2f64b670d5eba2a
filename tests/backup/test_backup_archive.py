"""The content of a backup, and archives that a restore refuses. No gateway runs."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile

import pytest

from edge import last_run
from edge.backup import BackupRefused, make, restore
from edge.backup.restore_backup import exchange
from edge.backup.staging import complete, stage
from edge.engine.journal.data_directory import DirectoryLock
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import ANYBODY
from edge.security.clients import Rights
from edge.security.security import Security
from edge.security.settings import SecuritySettings
from edge.streams.store import StreamStore
from edge.streams.stored_rows import StoredObserver, StoredQuery


@pytest.fixture
def data(tmp_path):
    """Return a data directory as gateways leave it, with an example of each file."""
    directory = tmp_path / "data"
    engine = open_engine(directory, EngineSettings())
    engine.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }")]).result(20)
    engine.close()
    security = Security(directory, SecuritySettings())
    security.clients.allow("kitchen", Rights(frozenset({"query"})))
    security.close()
    for name, text in (("mappings/own.toml", "# own"), ("tls/ca.key", "key"), ("mqtt-client-id", "sepa-edge-1\n")):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    (directory / "tls" / "ca.key").chmod(0o600)
    (directory / "endpoints.json").write_text("{}")
    return directory


def backed_up(data):
    file = io.BytesIO()
    make(data, file)
    file.seek(0)
    return file


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("lock", last_run.NAME) and not path.name.endswith(("-shm", "-wal"))
    }


def value_in(directory):
    engine = open_engine(directory, EngineSettings())
    try:
        return engine.quads
    finally:
        engine.close()


def test_a_restore_brings_back_everything_except_the_files_of_a_run(data, tmp_path):
    archive = tmp_path / "backup.tar.gz"
    manifest = make(data, archive)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert [entry.path for entry in manifest.files] == [
        "clients.sqlite3",
        "edge.sqlite3",
        "mqtt-client-id",
        "mappings/own.toml",
        "tls/ca.key",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data"]
    other = tmp_path / "other"
    with archive.open("rb") as file:
        assert restore(file, other).before is None
    kept = contents(data)
    del kept["endpoints.json"]
    assert {name: text for name, text in contents(other).items() if not name.endswith("sqlite3")} == {
        name: text for name, text in kept.items() if not name.endswith("sqlite3")
    }
    assert stat.S_IMODE((other / "tls" / "ca.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
    assert value_in(other) == 1
    assert last_run.read(other).run.reason == "restored"
    security = Security(other, SecuritySettings())
    assert "kitchen" in {client.identity for client in security.clients.all()}
    security.close()


def test_existing_data_is_replaced_only_on_request_and_moved_aside(data, tmp_path):
    archive = backed_up(data)
    (data / "mappings" / "own.toml").write_text("# changed")
    with pytest.raises(BackupRefused, match="not empty; --replace"):
        restore(archive, data)
    assert (data / "mappings" / "own.toml").read_text() == "# changed"
    for number in range(2):
        archive.seek(0)
        restored = restore(archive, data, replace=True)
        assert restored.before == tmp_path / f"data.before-restore{'-2' if number else ''}"
    assert (tmp_path / "data.before-restore" / "mappings" / "own.toml").read_text() == "# changed"
    assert (data / "mappings" / "own.toml").read_text() == "# own"
    archive.seek(0)
    assert restore(archive, data, replace=True, remove=True).before is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.before-restore", "data.before-restore-2"]


def test_a_symbolic_link_to_the_directory_stays_a_link(data, tmp_path):
    (tmp_path / "link").symlink_to(data)
    restored = restore(backed_up(data), tmp_path / "link", replace=True)
    assert restored.before == tmp_path / "data.before-restore"
    assert (tmp_path / "link").is_symlink()
    assert value_in(tmp_path / "link") == 1


def test_a_restore_is_refused_while_the_gateway_runs(data, tmp_path):
    archive = backed_up(data)
    lock = DirectoryLock(data)
    try:
        with pytest.raises(BackupRefused, match="in use by another gateway"):
            restore(archive, data, replace=True)
    finally:
        lock.release()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def rewritten(archive, change):
    """Return the archive with some members (name to content) changed, and a matching manifest."""
    with tarfile.open(fileobj=archive) as found:
        members = {member.name: found.extractfile(member).read() for member in found}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    return packed([*members.items(), ("manifest.json", json.dumps(manifest).encode())])


def packed(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    file.seek(0)
    return file


def entry(name, content):
    return {"path": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), "mode": 0o600}


HOSTILE = ("../evil", "/etc/evil", "a/../../evil", "a//b", "./a", "lock", "")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leads_out_of_the_directory(data, tmp_path, name):
    def smuggle(members, manifest):
        members[f"data/{name}"] = b"evil"
        manifest["files"].append(entry(name, b"evil"))

    with pytest.raises(BackupRefused, match="is not a valid name"):
        restore(rewritten(backed_up(data), smuggle), tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_only_files_are_taken(tmp_path, kind):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("data/mappings")
        member.type, member.linkname = kind, "/etc"
        archive.addfile(member)
    file.seek(0)
    with pytest.raises(BackupRefused, match="must not contain"):
        restore(file, tmp_path / "other")
    assert list(tmp_path.iterdir()) == []


def tampered(members, manifest):
    members["data/mqtt-client-id"] = b"sepa-edge-2\n"


def shortened(members, manifest):
    del members["data/tls/ca.key"]


def enlarged(members, manifest):
    members["data/more"] = b"more"


def newer(members, manifest):
    manifest["format"], manifest["version"] = 2, "9.0.0"


def without_journal(members, manifest):
    del members["data/edge.sqlite3"]
    manifest["files"] = [one for one in manifest["files"] if one["path"] != "edge.sqlite3"]


def damaged_journal(members, manifest):
    content = bytearray(members["data/edge.sqlite3"])
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    members["data/edge.sqlite3"] = bytes(content)
    manifest["files"] = [
        entry("edge.sqlite3", content) if one["path"] == "edge.sqlite3" else one for one in manifest["files"]
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (tampered, "mqtt-client-id is not what its manifest says"),
        (shortened, "tls/ca.key is not"),
        (enlarged, "more is not"),
        (newer, r"newer version of sepa-edge \(9.0.0\)"),
        (without_journal, "edge.sqlite3 is missing"),
        (damaged_journal, "cannot be used: .*damaged"),
    ],
)
def test_an_invalid_archive_is_refused_before_any_change(data, tmp_path, change, fault):
    archive = rewritten(backed_up(data), change)
    before = contents(data)
    with pytest.raises(BackupRefused, match=fault):
        restore(archive, data, replace=True)
    assert contents(data) == before
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_truncated_backup_is_refused(data, tmp_path):
    whole = backed_up(data).getvalue()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 2000):
        with pytest.raises(BackupRefused):
            restore(io.BytesIO(whole[:length]), tmp_path / "other")
    with pytest.raises(BackupRefused):
        restore(io.BytesIO(gzip.compress(b"no archive")), tmp_path / "other")
    with pytest.raises(BackupRefused, match="not whole"):
        restore(packed([]), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_missing_or_damaged_data_directory_is_not_backed_up(data, tmp_path):
    with pytest.raises(BackupRefused, match="is not a data directory"):
        make(tmp_path, tmp_path / "backup.tar.gz")
    with (data / "edge.sqlite3").open("r+b") as file:
        file.seek(3000)
        file.write(os.urandom(2000))
    (tmp_path / "backup.tar.gz").write_text("the last one")
    with pytest.raises(BackupRefused, match="damaged"):
        make(data, tmp_path / "backup.tar.gz", force=True)
    assert (tmp_path / "backup.tar.gz").read_text() == "the last one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data"]


def test_an_existing_file_is_replaced_only_by_force(data, tmp_path, monkeypatch):
    target = tmp_path / "backup.tar.gz"
    target.write_text("the last one")
    with pytest.raises(BackupRefused, match=r"exists already: name another file, or replace this one with --force"):
        make(data, target)
    assert target.read_text() == "the last one"
    manifest = make(data, target, force=True)
    with target.open("rb") as archive:
        assert restore(archive, tmp_path / "restored").manifest == manifest
    assert not target.stat().st_mode & 0o077
    # A link is replaced, and not followed.
    other = tmp_path / "link.tar.gz"
    other.symlink_to(tmp_path / "missing")
    with pytest.raises(BackupRefused, match="exists already"):
        make(data, other)
    # The file appears while the archive is written.
    late = tmp_path / "late.tar.gz"

    def written(*arguments):
        late.write_text("another one")
        return manifest

    monkeypatch.setattr("edge.backup.create_backup._write", written)
    with pytest.raises(BackupRefused, match="exists already"):
        make(data, late)
    assert late.read_text() == "another one"
    names = ["backup.tar.gz", "data", "late.tar.gz", "link.tar.gz", "restored"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_sequence_numbers_of_oscore_are_never_used_again(data, tmp_path):
    security = Security(data, SecuritySettings())
    rights = Rights(frozenset({"query"}))
    code = security.clients.invite("lamp", rights, 600)
    client_id, _ = security.clients.register(code)
    kid = security.contexts.make(client_id).kid
    archive = backed_up(data)
    used = security.contexts.reserve(kid, 1000)
    security.close()
    last = 0
    for name in ("one", "two"):
        archive.seek(0)
        restore(archive, tmp_path / name)
        again = Security(tmp_path / name, SecuritySettings())
        first = again.contexts.reserve(kid, 1)
        again.close()
        assert first > used + 1000
        assert first >= last
        last = first


def identifiers(directory):
    with contextlib.closing(StreamStore(directory)) as store:
        found = {query.name: (query.identifier, query.number) for query in store.queries()}
        assert {each.query: each.query_identifier for each in store.observers()} == {
            name: identifier for name, (identifier, _) in found.items()
        }
        return found


def test_queries_have_other_identifiers_after_a_restore(data, tmp_path):
    """Followers and observers must not mistake a report for another one with its number."""
    with contextlib.closing(StreamStore(data)) as store, store.transaction():
        for name in ("a", "b"):
            store.put_query(StoredQuery(name, "text", ANYBODY, 5, False, 3, 5, "before"))
            store.put_observer(StoredObserver(name, name, "http://127.0.0.1:1/", "", 3))
    archive = backed_up(data)
    found = [identifiers(data)]
    for name in ("one", "two"):
        archive.seek(0)
        restore(archive, tmp_path / name)
        found.append(identifiers(tmp_path / name))
    archive.seek(0)
    stage(archive, data, 2**30)
    complete(data)
    found.append(identifiers(data))
    assert {number for each in found for _, number in each.values()} == {3}
    assert len({identifier for each in found for identifier, _ in each.values()}) == 1 + 3 * 2


def test_damaged_streams_are_refused(data, tmp_path):
    (data / "streams.sqlite3").write_bytes(b"")
    with contextlib.closing(sqlite3.connect(data / "streams.sqlite3")) as file:
        file.execute("PRAGMA user_version = 99")
        file.execute("CREATE TABLE other (x)")
    with pytest.raises(BackupRefused, match=r"streams\.sqlite3 is from a newer .*file\. Install the version"):
        restore(backed_up(data), tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("known", [True, False])
def test_directories_change_places_also_where_the_kernel_cannot_do_it_in_one_step(tmp_path, monkeypatch, known):
    if not known:
        monkeypatch.setattr("edge.backup.restore_backup._renameat2", lambda *_: errno.EINVAL)
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        directory.mkdir()
        (directory / directory.name).touch()
    exchange(one, other)
    assert (other / "one").exists()
    assert (one / "other").exists()
    with pytest.raises(OSError, match="No such file"):
        exchange(tmp_path / "missing", other)
    assert (other / "one").exists()


def test_a_copy_of_a_growing_file_is_consistent(tmp_path):
    data = tmp_path / "data"
    engine = open_engine(data, EngineSettings())
    try:
        for number in range(50):
            engine.update([UpdateRequest(f"INSERT DATA {{ <urn:a> <urn:b> {number} }}")]).result(20)
        archive = backed_up(data)
    finally:
        engine.close()
    restore(archive, tmp_path / "other")
    assert value_in(tmp_path / "other") == 50
    with contextlib.closing(sqlite3.connect(tmp_path / "other" / "edge.sqlite3")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_backup_does_not_contain_itself(data, tmp_path):
    (tmp_path / "link").symlink_to(data)
    for place in (data / "backup.tar.gz", data / "mappings" / "backup.tar.gz", tmp_path / "link" / "backup.tar.gz"):
        with pytest.raises(BackupRefused, match="name another place"):
            make(data, place)
        assert not place.exists()
