"""A damaged file is refused and left unchanged; an accepted file has its complete content."""

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyoxigraph as ox
import pytest

from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.journal import Journal, JournalEntry, snapshot_bodies
from edge.engine.journal.sqlite_schema import APPLICATION_ID, FILE_NAME, FORMAT_VERSION
from edge.engine.store.changes import ChangeSet


@pytest.fixture(autouse=True)
def same_damage_every_time():
    random.seed(1)


def quad(number: int, subject: str = "s") -> ox.Quad:
    return ox.Quad(ox.NamedNode(f"urn:{subject}"), ox.NamedNode("urn:p"), ox.Literal(f"{number} {'x' * (number % 50)}"))


def entry(number: int) -> JournalEntry:
    return JournalEntry(number, ChangeSet((quad(number),), (quad(number - 1),) if number > 1 else ()), b"r%d" % number)


Content = tuple[int, tuple[bytes, ...], list[ChangeSet]]


def content(directory: Path) -> Content:
    journal = Journal.open(directory)
    try:
        return journal.sequence, journal.receipts(), list(journal.restore())
    finally:
        journal.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """Return a closed directory with a snapshot, commits after it, and free pages. It is never written to."""
    directory = tmp_path_factory.mktemp("sound")
    journal = Journal.open(directory)
    for number in range(1, 120):
        journal.commit([entry(number)])
    others = [quad(number * 7919, f"s{number}") for number in range(800)]
    journal.snapshot(snapshot_bodies([quad(119), *others], [ox.NamedNode("urn:g")]))
    for number in range(120, 160):
        journal.commit([entry(number)])
    journal.commit([entry(number) for number in range(160, 200)])
    journal.close()
    return directory


@pytest.fixture
def directory(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


def refused(directory: Path) -> str:
    """Check that opening fails and changes no file except the lock; return the error."""
    before = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file() and file.name != "lock"}
    with pytest.raises(DataDirectoryRefused) as caught:
        content(directory)
    after = {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file() and file.name != "lock"}
    after = {name: data for name, data in after.items() if not name.endswith("-shm")}
    assert after == {name: data for name, data in before.items() if not name.endswith("-shm")}
    message = caught.value.to_message()
    assert message["error"] == "data_refused"
    assert message["status_code"] == 503
    assert str(directory / FILE_NAME) in str(caught.value)
    return str(caught.value)


def change(directory: Path, statement: str) -> None:
    connection = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    assert connection.execute(statement).rowcount != 0
    connection.close()


def test_flipped_bytes_are_noticed_or_harmless(sound, tmp_path):
    data = (sound / FILE_NAME).read_bytes()
    expected = content(Path(shutil.copytree(sound, tmp_path / "reference")))
    pages = range(0, len(data), 1024)
    offsets = [
        *range(110),
        *(page + byte for page in pages for byte in range(8)),
        *random.sample(range(len(data)), 250),
    ]
    refusals = 0
    for number, offset in enumerate(offsets):
        directory = tmp_path / str(number)
        directory.mkdir()
        damaged = bytearray(data)
        damaged[offset] ^= random.randrange(1, 256)
        (directory / FILE_NAME).write_bytes(damaged)
        try:
            found = content(directory)
        except DataDirectoryRefused:
            refusals += 1
            assert (directory / FILE_NAME).read_bytes() == damaged
            assert {file.name for file in directory.iterdir()} == {FILE_NAME, "lock"}
        else:
            assert found == expected, offset
            journal = Journal.open(directory)
            journal.commit([entry(200)])
            journal.close()
            assert content(directory)[2] == [*expected[2], entry(200).changes], offset
        shutil.rmtree(directory)
    assert refusals > len(offsets) // 2


@pytest.mark.parametrize("keep", [1, 99, 100, 512, 1024, 5000, -1024, -1])
def test_truncated_file_is_refused(directory, keep):
    file = directory / FILE_NAME
    file.write_bytes(file.read_bytes()[:keep])
    assert "is damaged" in refused(directory) or keep < 1024


def test_empty_file_is_refused(directory):
    (directory / FILE_NAME).write_bytes(b"")
    assert "not a file of this gateway" in refused(directory)


@pytest.mark.parametrize("size", [10, 100, 5000])
def test_file_that_is_not_a_database_is_refused(directory, size):
    (directory / FILE_NAME).write_bytes(b"\xff" + random.randbytes(size))
    message = refused(directory)
    assert "is not an SQLite database" in message
    assert "Restore a backup" in message


def test_database_of_another_application_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    assert "belongs to another application" in refused(tmp_path)


def test_database_of_another_application_with_its_log_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE photos (name TEXT)")
    shutil.copytree(tmp_path, tmp_path / "copy")
    connection.close()
    assert "belongs to another application" in refused(tmp_path / "copy")


def test_newer_format_is_refused(directory):
    change(directory, f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    message = refused(directory)
    assert "newer version" in message
    assert "use that version" in message


def test_directory_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / FILE_NAME).mkdir()
    assert "cannot be opened" in refused(tmp_path)


@pytest.mark.parametrize(
    ("statement", "expected_message"),
    [
        ("DELETE FROM commits WHERE first = 130", "update 130 is missing"),
        ("DELETE FROM commits WHERE first = 120", "update 120 is missing"),
        (
            "UPDATE commits SET body = (SELECT body FROM commits WHERE first = 131) WHERE first = 130",
            "fails its checksum",
        ),
        ("UPDATE commits SET first = 250 WHERE first = 160", "update 160 is missing"),
        ("DELETE FROM snapshot", "0 snapshots"),
        ("UPDATE snapshot SET sequence = 118", "head of the snapshot fails its checksum"),
        ("UPDATE snapshot SET receipts = x'00'", "head of the snapshot fails its checksum"),
        ("DELETE FROM snapshot_chunks WHERE number = 1", "chunk 1 of the snapshot"),
        ("DELETE FROM snapshot_chunks WHERE number = 2", "1 chunks of 2"),
        ("UPDATE snapshot_chunks SET body = x'72' WHERE number = 2", "chunk 2 of the snapshot"),
        ("DROP TABLE meta", f"its tables are not those of format {FORMAT_VERSION}"),
        ("ALTER TABLE commits RENAME TO other", f"its tables are not those of format {FORMAT_VERSION}"),
        ("PRAGMA user_version = 0", "format version 0 does not exist"),
        (f"PRAGMA application_id = {APPLICATION_ID + 1}", "another application"),
    ],
)
def test_changed_rows_are_detected(directory, statement, expected_message):
    change(directory, statement)
    assert expected_message in refused(directory)


def test_sqlite_statistics_are_not_damage(directory):
    expected = content(directory)
    change(directory, "ANALYZE")
    assert content(directory) == expected


def test_write_ahead_log_without_its_file_is_refused(directory):
    (directory / FILE_NAME).unlink()
    (directory / f"{FILE_NAME}-wal").write_bytes(b"x")
    assert "is missing while its write-ahead log is there" in refused(directory)


# 30 commits, then an end without closing: all of them are only in the write-ahead log.
UNCLOSED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_journal_damage import Journal, entry
journal = Journal.open(Path(sys.argv[2]), durability=sys.argv[3])
for number in range(1, 31):
    journal.commit([entry(number)])
os.kill(os.getpid(), 9)
"""


def unclosed(directory: Path, durability: str) -> Path:
    subprocess.run([sys.executable, "-c", UNCLOSED, Path(__file__).parent, directory, durability], check=False)
    return directory


def commit_frames(wal: bytes) -> list[int]:
    """Return the offsets of the frames that end a commit."""
    frame = 24 + int.from_bytes(wal[8:12], "big")
    return [
        at
        for at in range(32, len(wal), frame)
        if wal[at + 4 : at + 8] != bytes(4) and wal[at + 8 : at + 16] == wal[16:24]
    ]


@pytest.mark.integration
def test_damage_in_the_log_is_refused_except_in_the_last_commit(tmp_path):
    """A torn last commit looks like one that was in progress, and is the only one that may be dropped.

    Its frame header separates it from the commit before; if this header is damaged, the two look like one commit.
    """
    source = unclosed(tmp_path / "source", "commit")
    wal = (source / f"{FILE_NAME}-wal").read_bytes()
    assert len(wal) > 30 * 1024
    expected = [entry(number).changes for number in range(1, 31)]
    parting = commit_frames(wal)[-2]
    chance = random.Random(1)
    refusals = 0
    offsets = {*range(32), *range(parting, parting + 24), *range(len(wal) - 5, len(wal))}
    offsets.update(chance.sample(range(32, parting), 100))
    for offset in sorted(offsets):
        copy = Path(shutil.copytree(source, tmp_path / "copy"))
        damaged = bytearray(wal)
        damaged[offset] ^= chance.randrange(1, 256)
        (copy / f"{FILE_NAME}-wal").write_bytes(damaged)
        try:
            found = content(copy)
        except DataDirectoryRefused:
            refusals += 1
            assert (copy / f"{FILE_NAME}-wal").read_bytes() == damaged
            assert (copy / FILE_NAME).read_bytes() == (source / FILE_NAME).read_bytes()
        else:
            lost = 2 if parting <= offset < parting + 24 else 1
            assert found[2] in [expected[: len(expected) - n] for n in range(lost + 1)], offset
        shutil.rmtree(copy)
    assert refusals > 100


@pytest.mark.integration
def test_incomplete_last_commit_in_the_log_is_accepted(tmp_path):
    source = unclosed(tmp_path / "source", "commit")
    wal = source / f"{FILE_NAME}-wal"
    wal.write_bytes(wal.read_bytes()[:-100])
    assert content(source)[2] == [entry(number).changes for number in range(1, 30)]


@pytest.mark.integration
def test_with_interval_the_log_may_have_lost_its_end(tmp_path):
    """Frames reach the medium in any order until a flush, so that a hole is the bounded loss of this setting."""
    source = unclosed(tmp_path / "source", "interval")
    wal = source / f"{FILE_NAME}-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wal.write_bytes(data)
    found = content(source)[2]
    assert 5 < len(found) < 30
    assert found == [entry(number).changes for number in range(1, len(found) + 1)]
