"""After `kill -9`, a full disk or an I/O error, all acknowledged commits are present and none is partial."""

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyoxigraph as ox
import pytest

from edge.engine.journal.journal import Journal

# Group n holds (n % 5) + 1 entries. Entry i adds the value i and removes the value i - 3, on two subjects. The
# number of the last entry goes to standard output once it is committed.
WRITER = """
import sys
from pathlib import Path
import pyoxigraph as ox
from edge.engine.store.changes import ChangeSet
from edge.engine.journal.journal import JournalEntry, Journal, snapshot_bodies

def quads(i):
    return tuple(ox.Quad(ox.NamedNode(f"urn:{s}"), ox.NamedNode("urn:value"), ox.Literal(str(i))) for s in "ab")

def entry(i):
    return JournalEntry(i, ChangeSet(quads(i), quads(i - 3) if i > 3 else ()), b"%06d" % i)

journal = Journal.open(Path(sys.argv[1]), durability=sys.argv[2], snapshot_min_bytes=3000, receipt_bytes=60)
last = journal.sequence
while True:
    group = [entry(i) for i in range(last + 1, last + 2 + last % 5)]
    timer = str(group[-1].at)
    last = journal.commit(group, lambda c: c.execute("INSERT OR REPLACE INTO meta VALUES ('timer', ?)", (timer,)))
    print(last, flush=True)
    if journal.snapshot_due:
        journal.snapshot(snapshot_bodies([quad for i in range(max(1, last - 2), last + 1) for quad in quads(i)], []))
"""


def ends_of_groups(limit: int) -> set[int]:
    ends = [0]
    while ends[-1] < limit:
        ends.append(ends[-1] + 1 + ends[-1] % 5)
    return set(ends)


def check(directory: Path, acknowledged: int, durability: str) -> int:
    """Check that the content is the state after a complete group, at or after the acknowledged one."""
    timers: list[tuple[str]] = []
    journal = Journal.open(directory, durability=durability, receipt_bytes=60)
    last = journal.sequence
    assert last >= acknowledged
    assert last in ends_of_groups(last)
    quads: set[ox.Quad] = set()
    for changes in journal.restore():
        assert quads.issuperset(changes.removed)
        quads = quads.difference(changes.removed).union(changes.added)
    expected = {(f"urn:{s}", str(i)) for s in "ab" for i in range(max(1, last - 2), last + 1)}
    assert {(quad.subject.value, quad.object.value) for quad in quads} == expected
    assert journal.receipts() == b"".join(b"%06d" % i for i in range(max(1, last - 9), last + 1))
    journal.commit((), lambda c: timers.extend(c.execute("SELECT value FROM meta WHERE name = 'timer'")))
    assert timers == ([(str(last),)] if last else [])
    journal.close()
    return last


def run_and_kill(directory: Path, durability: str, lines: int) -> int:
    """Let the writer run for this many acknowledgements, then kill it; return the last acknowledged number."""
    acknowledged = 0
    with subprocess.Popen([sys.executable, "-c", WRITER, directory, durability], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(lines):
            acknowledged = int(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            acknowledged = int(line) if line.endswith(b"\n") else acknowledged
    assert process.returncode == -signal.SIGKILL
    return acknowledged


@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path, durability):
    before = 0
    for _ in range(8):
        acknowledged = run_and_kill(tmp_path, durability, random.randrange(1, 400))
        assert acknowledged > before
        before = check(tmp_path, acknowledged, durability)


def test_killed_before_anything_was_written(tmp_path):
    starter = "import sys, os; from pathlib import Path; from edge.engine.journal import sqlite_schema\n"
    starter += "rename = Path.rename\nPath.rename = lambda *_: os.kill(os.getpid(), 9)\n"
    starter += "sqlite_schema.create(Path(sys.argv[1]) / 'edge.sqlite3', 'commit')"
    assert subprocess.run([sys.executable, "-c", starter, tmp_path], check=False).returncode == -signal.SIGKILL
    assert [file.name for file in tmp_path.iterdir()] == ["edge.sqlite3.new"]
    journal = Journal.open(tmp_path)
    assert journal.sequence == 0
    journal.close()
    assert {file.name for file in tmp_path.iterdir()} == {"edge.sqlite3", "lock"}


# Commits until the disk is full, several times, then again with free space. Prints "ok" if all checks hold.
FILLER = """
import os, resource, sys
from pathlib import Path
import pyoxigraph as ox
from edge.engine.store.changes import ChangeSet
from edge.engine.journal.journal import JournalEntry, Journal, snapshot_bodies
from edge.protocol.errors import StorageFailed

directory, kind = Path(sys.argv[1]), sys.argv[2]
ballast = directory.parent / "ballast"

def tight():
    if kind == "limit":
        largest = max(file.stat().st_size for file in directory.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 3000, resource.RLIM_INFINITY))
        return
    with open(ballast, "ab", buffering=0) as file:
        try:
            while True:
                file.write(os.urandom(1024))
        except OSError:
            pass

def roomy():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ballast.unlink(missing_ok=True)

def quad():
    return ox.Quad(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal(os.urandom(300).hex()))

def entry():
    return JournalEntry(0, ChangeSet(tuple(quad() for _ in range(20))), os.urandom(8))

def check(journal):
    assert journal.sequence == len(stored), (journal.sequence, len(stored))
    assert [set(changes.added) for changes in journal.restore()] == [set(e.changes.added) for e in stored]
    assert journal.receipts() == b"".join(e.receipt for e in stored)

stored = []
journal = Journal.open(directory)
failed = 0
for round in range(3):
    for _ in range(5):
        stored.append(entry()); journal.commit([stored[-1]])
    tight()
    failed = 0
    for _ in range(2000):
        new = entry()
        try:
            journal.commit([new])
            stored.append(new)
        except StorageFailed as error:
            failed += 1
            said = str(error)
            check(journal)
            if failed == 5:
                break
        else:
            tight()
    assert failed == 5
    print(said)
    assert not journal.snapshot(snapshot_bodies([quad() for _ in range(2000)], []))
    check(journal)
    roomy()
    stored.append(entry()); journal.commit([stored[-1]])
    check(journal)
journal.close()
journal = Journal.open(directory)
check(journal)
state = [quad() for _ in range(2000)]
assert journal.snapshot(snapshot_bodies(state, []))
journal.close()
journal = Journal.open(directory)
assert {quad for changes in journal.restore() for quad in changes.added} == set(state)
journal.close()
print("ok")
"""


def test_the_largest_file_size_is_reached_and_lifted(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", FILLER, tmp_path / "data", "limit"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok"
    assert "disk I/O error" in result.stdout


def test_a_full_disk_recovers(tmp_path):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (package util-linux)")
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"']
    if subprocess.run([*mount, tmp_path, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a small file system in a namespace of its own, which is not allowed here")
    result = subprocess.run(
        [*mount, tmp_path, sys.executable, "-c", FILLER, tmp_path / "data", "disk"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "ok"
    assert "database or disk is full" in result.stdout
    assert "Free space" in result.stdout


def test_a_full_disk_at_the_very_start(tmp_path):
    starter = "import resource, sys; from pathlib import Path; from edge.engine.journal.journal import Journal\n"
    starter += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))\n"
    starter += "Journal.open(Path(sys.argv[1]))"
    result = subprocess.run([sys.executable, "-c", starter, tmp_path], capture_output=True, text=True, check=False)
    assert "DataDirectoryRefused" in result.stderr
    assert "cannot be created" in result.stderr
    journal = Journal.open(tmp_path)
    assert journal.sequence == 0
    journal.close()
