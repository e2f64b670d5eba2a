"""The journal on a simulated disk: a power cut never loses acknowledged data, whichever writes it loses or tears."""

import random
import tempfile
from pathlib import Path

import pyoxigraph as ox
import pytest
from simulated_disk import DISK

from edge.engine.journal.journal import Journal, JournalEntry, snapshot_bodies
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import StorageFailed


def entry(number, length):
    text = ox.Literal(f"{number} {random.Random(number).randbytes(length // 2).hex()}")
    quad = ox.Quad(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), text)
    return JournalEntry(number, ChangeSet((quad,)), b"%d" % number)


def numbers(journal):
    return [int(str(quad[2].value).split()[0]) for changes in journal.restore() for quad in changes.added]


class Box:
    """A journal that is reopened after each end of its process."""

    def __init__(self, directory, seed):
        self.chance = random.Random(seed)
        self.disk = DISK
        self.directory = directory
        self.acknowledged = self.tried = 0

    def open(self):
        self.journal = Journal.open(self.directory, snapshot_min_bytes=20_000)
        stored = numbers(self.journal)
        sequence = self.journal.sequence
        assert stored == list(range(stored[0], sequence + 1)) if stored else sequence == 0
        assert sequence in (self.acknowledged, self.tried)
        self.acknowledged = self.tried = self.journal.sequence

    def commit(self, length):
        self.tried = self.acknowledged + 1
        try:
            last = self.journal.commit([entry(self.tried, length)])
        except StorageFailed:
            # If syncs continue to fail, it is unknown which of the two states the medium has.
            if not self.disk.stopped and not self.journal._log_unclean:
                self.tried = self.acknowledged
            return
        if not self.disk.stopped:
            self.acknowledged = last

    def end(self, *, power_cut):
        self.disk.stops_at = self.disk.operations if self.disk.stops_at is None else self.disk.stops_at
        self.journal._connection.close()
        self.journal._lock.release()
        self.disk.restart(self.chance, power_cut=power_cut)


@pytest.fixture
def directory():
    """Use a directory in memory: the disk is simulated, so the real one need not be slow."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def test_two_power_cuts_in_a_row_do_not_look_like_damage(directory):
    """Each power cut tears a commit so that only its last frame survives; the first commit is the longer one."""
    box = Box(directory, seed=0)

    def stop(path):
        box.disk.stops_at = box.disk.operations
        box.disk.before_sync = lambda _: None

    with box.disk.mounted():
        box.open()
        box.commit(10)
        for length in (6000, 1500, 300):
            box.disk.before_sync = stop
            box.commit(length)
            assert box.disk.stopped
            log = box.disk.file(directory / "edge.sqlite3-wal")
            log.lose(range(len(log.unsynced) - 2))
            box.end(power_cut=False)
            box.open()
            assert numbers(box.journal) == [1]
        box.journal.close()


@pytest.mark.parametrize("seed", range(100))
def test_any_kills_and_power_cuts_lose_nothing_acknowledged(directory, seed):
    box = Box(directory, seed)
    with box.disk.mounted():
        box.open()
        for _ in range(40):
            if box.disk.stops_at is None and box.chance.random() < 0.3:
                box.disk.stops_at = box.disk.operations + box.chance.randrange(1, 60)
            box.disk.full = box.chance.random() < 0.1
            box.disk.failing_syncs = box.chance.random() < 0.1
            box.commit(box.chance.choice((10, 300, 1500, 6000)))
            if not box.disk.stopped and box.journal.snapshot_due:
                rows = entry(box.acknowledged, 10).changes.added
                box.journal.snapshot(snapshot_bodies([ox.Quad(*row) for row in rows], []))
            if box.disk.stopped:
                box.end(power_cut=box.chance.random() < 0.7)
                box.open()
        box.end(power_cut=True)
        box.open()
        box.journal.close()
