"""Only one gateway uses a data directory; an unusable directory is refused with a clear error."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from edge.engine.journal.data_directory import DataDirectoryRefused
from edge.engine.journal.journal import Journal, JournalEntry
from edge.engine.store.changes import ChangeSet

HOLDER = """
import sys
from pathlib import Path
from edge.engine.journal.journal import Journal
journal = Journal.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path):
    holder = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(DataDirectoryRefused, match=rf"in use by another gateway \(process {process.pid}\)"):
            Journal.open(tmp_path)
        assert (tmp_path / "lock").read_text() == f"{process.pid}\n"
        process.kill()
        assert process.wait() == -signal.SIGKILL
    journal = Journal.open(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    journal.close()


@pytest.mark.parametrize("also", [(), ("VACUUM",)])
def test_a_second_process_is_refused_after_the_lock_file_was_removed(tmp_path, also):
    """The journal file is locked as well. Readers, such as a backup, are not refused."""
    holder = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        (tmp_path / "lock").unlink()
        with contextlib.closing(sqlite3.connect(tmp_path / "edge.sqlite3", isolation_level=None)) as reader:
            assert reader.execute("SELECT count(*) FROM meta").fetchone()[0] > 0
            for statement in also:
                reader.execute(statement)
        for _ in range(2):
            with pytest.raises(DataDirectoryRefused, match=rf"in use by another gateway \(process {process.pid}\)"):
                Journal.open(tmp_path)
        process.kill()
        process.wait()
    journal = Journal.open(tmp_path)
    assert journal.commit([JournalEntry(1, ChangeSet())]) == 1
    journal.close()


def test_a_new_journal_file_is_locked_at_once(tmp_path):
    journal = Journal.open(tmp_path / "new")
    (tmp_path / "new" / "lock").unlink()
    script = (
        "import sys, pathlib; from edge.engine.journal.journal import Journal; Journal.open(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "new"], capture_output=True, text=True, check=False)
    assert "in use by another gateway" in done.stderr
    assert journal.commit([JournalEntry(1, ChangeSet())]) == 1
    journal.close()


def test_a_second_journal_in_the_process_is_refused_and_the_first_continues(tmp_path):
    journal = Journal.open(tmp_path)
    with pytest.raises(DataDirectoryRefused, match="in use"):
        Journal.open(tmp_path)
    assert journal.commit([JournalEntry(1, ChangeSet())]) == 1
    journal.close()
    Journal.open(tmp_path).close()


def test_a_refused_file_does_not_keep_the_lock(tmp_path):
    (tmp_path / "edge.sqlite3").write_text("no database, but more than a few bytes")
    for _ in range(2):
        with pytest.raises(DataDirectoryRefused, match="not an SQLite database"):
            Journal.open(tmp_path)
    (tmp_path / "edge.sqlite3").unlink()
    Journal.open(tmp_path).close()


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirectoryRefused, match="it is not a directory"):
        Journal.open(tmp_path / "data")
    with pytest.raises(DataDirectoryRefused, match="Not a directory"):
        Journal.open(tmp_path / "data" / "below")


def test_a_directory_that_may_not_be_written(tmp_path):
    directory = tmp_path / "data"
    directory.mkdir(mode=0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(DataDirectoryRefused, match="Permission denied") as caught:
            Journal.open(directory)
        assert "Name a directory that this user may write to" in str(caught.value)
    finally:
        os.seteuid(user)


def test_names_with_odd_characters(tmp_path):
    directory = tmp_path / "50% of data? yes #1 é"
    for sequence in (1, 2):
        journal = Journal.open(directory)
        assert journal.commit([JournalEntry(1, ChangeSet())]) == sequence
        journal.close()


def test_a_relative_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Journal.open(Path("data")).close()
    assert (tmp_path / "data" / "edge.sqlite3").exists()
