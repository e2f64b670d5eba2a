"""Batches of updates for one commit, and the progress reports of the writer, on a clock that only work advances."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fake_clock import FakeClock
from scheduler_harness import WAIT, commits

from edge.engine.journal.journal import AlsoWrite, Journal, JournalEntry
from edge.engine.requests import UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import Access, Priority
from tests.support.settings import unchecked


class Disk:
    """A journal whose commits take as many milliseconds as the test says. It counts the updates of each commit."""

    def __init__(self, journal: Journal, clock: FakeClock) -> None:
        self._journal = journal
        self._clock = clock
        self.times: dict[int, float] = {}
        """Milliseconds by the number of the commit; 0 for all others."""
        self.usual = 0.0
        self.sizes: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    def commit(self, entries: Sequence[JournalEntry], also: AlsoWrite | None = None) -> int:
        sequence = self._journal.commit(entries, also)
        self.sizes.append(len(entries))
        self._clock.advance(self.times.get(len(self.sizes), self.usual) / 1000)
        return sequence


class Site:
    """An engine with a fake clock, whose updates take as many milliseconds as their notes say."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.clock = FakeClock()
        self.door = threading.Event()
        self.at_the_door = threading.Event()
        self.order: list[str] = []
        self.sent = 0
        self.busy: list[float] = []
        self.oldest: list[float] = []
        given = unchecked(EngineSettings, **settings)  # type: ignore[arg-type]
        engine = make_engine(given)
        engine.write_down(self)  # type: ignore[arg-type]  # it has what `execute` asks of a ledger
        self.disk = Disk(Journal.open(directory), self.clock)
        self.scheduler = Scheduler(engine, self.disk, given, self.clock)  # type: ignore[arg-type]  # it has its methods

    graph = "urn:notes"

    def take(self, notes, statements, now) -> int:
        """Act as a ledger, on the writer's thread."""
        ((name, milliseconds),) = notes
        self.at_the_door.set()
        assert self.door.wait(WAIT)
        self.order.append(name)
        self.clock.advance(milliseconds / 1000)
        self.busy.append(self.scheduler.busy_seconds)
        self.oldest.append(self.scheduler.waiting_seconds)
        return 0

    def send(self, source: str, milliseconds: int, priority: Priority = "normal"):
        self.sent += 1
        request = UpdateRequest(
            f"INSERT DATA {{ <urn:s> <urn:p> {self.sent} }}",
            access=Access(source, priority=priority),
            source=source,
            notes=((source or "house", milliseconds),),
        )
        return self.scheduler.update([request])

    def run(self, *futures) -> None:
        self.door.set()
        for future in futures:
            future.result(WAIT)


@pytest.fixture
def site(tmp_path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.door.set()
    assert site.scheduler.close(WAIT)


def test_a_batch_ends_after_its_time(site, tmp_path):
    """Each update takes 20 ms: the third one is the last in a commit of at most 50 ms."""
    site.run(*(site.send("a", 20) for _ in range(9)))
    assert commits(tmp_path) == 3


def test_a_batch_of_several_clients_ends_sooner(site, tmp_path):
    """While another client counts as active, for one second, the flood gets one update per commit, and 50 ms later."""
    first = site.send("flood", 20)
    assert site.at_the_door.wait(WAIT)
    others = [site.send(source, 20) for source in ("usual", "flood", "flood", "flood", "flood")]
    site.run(first, *others)
    assert site.order[:2] == ["flood", "usual"]
    assert commits(tmp_path) == 5
    site.clock.advance(1)
    site.door.clear()
    site.run(*(site.send("flood", 20) for _ in range(3)))
    assert commits(tmp_path) == 6


@pytest.mark.parametrize("slow", [range(2, 3), range(2, 4)])
def test_a_slow_commit_among_fast_ones_does_not_lengthen_the_next_batch(site, slow):
    """SQLite moves its log into the file in some commits: the next batch takes 3 ms as usual."""
    site.disk.times = dict.fromkeys(slow, 40.0)
    first = site.send("flood", 2)
    assert site.at_the_door.wait(WAIT)
    site.run(first, *(site.send(source, 2) for _ in range(30) for source in ("usual", "flood")))
    assert len(site.disk.sizes) > 10
    assert max(site.disk.sizes) == 2


def test_a_batch_is_four_times_as_long_as_the_commits_of_a_slow_disk(site):
    """Commits take 4 ms: after some of them a batch collects 16 ms, so they take at most a fifth of the time."""
    site.disk.usual = 4.0
    first = site.send("flood", 2)
    assert site.at_the_door.wait(WAIT)
    site.run(first, *(site.send(source, 2) for _ in range(40) for source in ("usual", "flood")))
    assert 8 in site.disk.sizes[:8]
    assert max(site.disk.sizes) == 8


def test_turns_are_decided_at_each_take_and_by_the_time_that_work_took(site):
    """One client sends 30 updates of 0.9 s: a sensor and other clients wait for the running one only."""
    first = [site.send("flood", 900) for _ in range(30)]
    assert site.at_the_door.wait(WAIT)
    others = [site.send("", 1), site.send("urgent", 1, "high"), site.send("usual", 1), site.send("usual", 1)]
    site.run(*first, *others)
    assert set(site.order[1:3]) == {"house", "urgent"}
    assert site.order[3:5] == ["usual", "usual"]


def test_a_writer_that_completes_pieces_is_slow_and_not_stuck(site):
    first = site.send("flood", 20_000)
    assert site.at_the_door.wait(WAIT)
    site.run(first, *(site.send("flood", 20_000) for _ in range(9)))
    assert max(site.busy) == pytest.approx(20)
    assert max(site.oldest) == pytest.approx(180)
