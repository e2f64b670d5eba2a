"""Files of an open database that an operator renames, deletes, replaces or overwrites: no update is lost silently."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyoxigraph as ox
import pytest

from edge.engine.journal.journal import Journal, JournalEntry, snapshot_bodies
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import StorageFailed
from edge.security.client_database import ClientDatabase
from edge.streams.store import StreamStore

CHECKPOINT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
connection.close()
"""
NAME = "edge.sqlite3"
ALL = (NAME, f"{NAME}-wal", f"{NAME}-shm")


def entry(number: int) -> JournalEntry:
    node = ox.NamedNode("urn:n")
    return JournalEntry(number, ChangeSet(((node, node, ox.Literal(number), None),)))


def numbers(directory: Path) -> list[str]:
    journal = Journal.open(directory)
    found = [quad.object.value for changes in journal.restore() for quad in changes.added]
    journal.close()
    return found


def rename(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).rename(directory / f"moved-{name}")


def put_back(directory: Path) -> None:
    for moved in directory.glob("moved-*"):
        moved.replace(directory / moved.name.removeprefix("moved-"))


def replace(directory: Path) -> None:
    """Put an empty database of another gateway in the place of the file."""
    Journal.open(directory / "other").close()
    rename(directory, NAME)
    shutil.copyfile(directory / "other" / NAME, directory / NAME)


WAYS: dict[str, Callable[[Path], None]] = {
    "all": lambda directory: rename(directory, *ALL),
    "the database": lambda directory: rename(directory, NAME),
    "the log": lambda directory: rename(directory, f"{NAME}-wal"),
    "the index of the log": lambda directory: rename(directory, f"{NAME}-shm"),
    "another database": replace,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_updates_fail_until_renamed_files_are_put_back(tmp_path, way):
    journal = Journal.open(tmp_path)
    journal.commit([entry(1)])
    assert journal.fault == ""
    way(tmp_path)
    assert "was renamed, deleted or replaced" in journal.fault
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"renamed, deleted or replaced.*Put the same files back"):
            journal.commit([entry(2)])
    assert not journal.snapshot(snapshot_bodies([], []))
    put_back(tmp_path)
    assert journal.fault == ""
    assert journal.commit([entry(3)]) == 2
    journal.close()
    assert numbers(tmp_path) == ["1", "3"]


@pytest.mark.parametrize("names", [ALL, ALL[:1], ALL[1:]], ids=len)
def test_updates_fail_after_files_were_deleted(tmp_path, names):
    journal = Journal.open(tmp_path, durability="interval")
    journal.commit([entry(1)])
    for name in names:
        (tmp_path / name).unlink()
    with pytest.raises(StorageFailed, match="deleted"):
        journal.commit([entry(2)])
    with pytest.raises(StorageFailed, match="deleted"):
        journal.flush()
    with contextlib.suppress(StorageFailed):
        journal.close()


def test_the_directory_may_be_renamed_and_put_back(tmp_path):
    journal = Journal.open(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed, match="renamed"):
        journal.commit([entry(1)])
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    journal.commit([entry(2)])
    journal.close()
    assert numbers(tmp_path / "data") == ["2"]


def test_a_second_gateway_on_new_files_does_not_leave_the_first_one_working(tmp_path):
    first = Journal.open(tmp_path)
    first.commit([entry(1)])
    for name in (*ALL, "lock"):
        (tmp_path / name).unlink()
    second = Journal.open(tmp_path)
    second.commit([entry(2)])
    with pytest.raises(StorageFailed, match="replaced"):
        first.commit([entry(3)])
    second.close()
    first.close()
    assert numbers(tmp_path) == ["2"]


def test_a_checkpoint_by_another_program_is_harmless(tmp_path):
    journal = Journal.open(tmp_path)
    journal.commit([entry(1)])
    program = [sys.executable, "-c", CHECKPOINT, str(tmp_path / NAME)]
    subprocess.run(program, check=True)
    journal.commit([entry(2)])
    # The locks are in place: otherwise another program that ends would delete the log.
    subprocess.run(program, check=True)
    assert journal.fault == ""
    journal.commit([entry(3)])
    journal.close()
    assert numbers(tmp_path) == ["1", "2", "3"]


def test_the_other_databases_refuse_changes_as_well(tmp_path):
    streams = StreamStore(tmp_path)
    streams.set_time(1)
    clients = ClientDatabase(tmp_path)
    assert clients.fault == ""
    rename(tmp_path, "streams.sqlite3", "clients.sqlite3")
    with pytest.raises(StorageFailed, match="renamed"), streams.transaction():
        streams.set_time(2)
    with pytest.raises(StorageFailed, match="renamed"), clients.change() as connection:
        connection.execute("INSERT INTO gateway (name, value) VALUES ('x', 'y')")
    assert "renamed" in clients.fault
    put_back(tmp_path)
    assert streams.time == 1
    with streams.transaction():
        streams.set_time(3)
    assert clients.fault == ""
    streams.close()
    clients.close()
