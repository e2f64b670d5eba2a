"""Reports that the store keeps for followers, next to those that wait for observers."""

from __future__ import annotations

import pytest

from edge.protocol.errors import StorageFailed
from edge.streams.kept_reports import KeptReports
from edge.streams.model import QueryForm, StreamOperator
from edge.streams.report import Report
from edge.streams.report_merge import OVERHEAD
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow, StoredObserver
from edge.streams.waiting import WaitingReports

MINUTE = 60_000_000
SIZE = len(Report("q", 1, 0, QueryForm.SELECT, (), ()).body()) + OVERHEAD
MOST = 40 * SIZE


class World:
    """A store on a disk, and a process that can end."""

    def __init__(self, directory, most=MOST):
        self.directory = directory
        self.most = most
        self.now = 0
        self.followed = set()
        self.open()

    def open(self):
        self.store = StreamStore(self.directory)
        self.kept = KeptReports(self.store, self.most, lambda: self.now, self.followed.__contains__)
        self.waiting = WaitingReports(self.store, 1_000_000, self.kept)

    def restart(self):
        self.followed.clear()
        self.store.close()
        self.open()

    def report(self, query, *numbers, fails=False):
        """Store reports as a turn of the processor does."""
        for number in numbers:
            report = Report(query, number, number, QueryForm.SELECT, (), ())
            try:
                with self.store.transaction():
                    if (body := self.waiting.body(report)) is not None:
                        self.store.report(query, ReportRow(number, number, report.kind, 1, body))
                    if fails:
                        raise OSError
            except OSError:
                pass
        self.waiting.expire()

    def stored(self, query="q"):
        return [row.number for row in self.store.reports(query, 0, -1)]

    def after(self, number, query="q"):
        return [report.number for report in self.kept.after(query, number)]


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.store.close()


def test_only_followed_queries_keep_reports(world):
    world.report("q", 1)
    world.kept.follow("q")
    world.report("q", 2, 3)
    world.report("other", 1)
    assert (world.stored(), world.stored("other")) == ([2, 3], [])
    assert (world.after(0), world.after(2), world.after(3), world.after(0, "other")) == ([2, 3], [3], [], [])


def test_kept_reports_and_expected_followers_survive_the_process(world):
    world.kept.follow("q")
    world.kept.follow("silent")
    world.report("q", 1, 2)
    world.now = -5 * MINUTE  # the machine has started again
    world.restart()
    world.report("q", 3)
    world.report("silent", 1)
    assert (world.after(0), world.after(0, "silent")) == ([1, 2, 3], [1])
    world.now += 9 * MINUTE
    world.report("q", 4)
    assert world.after(0) == [1, 2, 3, 4]
    world.now += MINUTE
    world.report("q", 5)
    assert (world.stored(), world.after(0)) == ([], [])
    world.restart()
    world.report("q", 6)
    assert world.stored() == []


def test_reports_are_kept_while_there_are_followers(world):
    world.kept.follow("q")
    world.followed.add("q")
    world.now = 60 * MINUTE
    world.report("q", 1)
    world.followed.clear()
    world.now += 9 * MINUTE
    world.report("q", 2)
    assert world.after(0) == [1, 2]


def test_the_store_holds_little_more_than_the_limit(world):
    world.kept.follow("q")
    for number in range(1, 101):
        world.report("q", number)
        assert len(world.stored()) <= 10 + 6  # a quarter, and an eighth of the limit that is removed at once
        assert world.after(0) == list(range(max(1, number - 9), number + 1))
    world.restart()
    assert world.after(0) == list(range(91, 101))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_transaction_that_fails_keeps_what_the_next_one_stores(world, restarted):
    world.kept.follow("q")
    world.report("q", 1)
    world.report("q", 2, fails=True)
    assert world.after(0) == [1]
    if restarted:
        world.restart()
    world.report("q", 2, 3)
    assert world.after(0) == [1, 2, 3]


def test_reports_are_stored_once_and_leave_when_neither_observers_nor_followers_need_them(world):
    world.waiting.add(StoredObserver("a", "q", "http://127.0.0.1:1/", "", 0))
    world.report("q", 1)
    world.kept.follow("q")
    world.report("q", 2, 3)
    assert world.stored() == [1, 2, 3]
    assert (world.after(0), len(world.waiting.waiting("a", -1))) == ([2, 3], 3)
    world.waiting.acknowledged("a", 3)
    world.waiting.flush()
    assert (world.stored(), world.after(0)) == ([2, 3], [2, 3])
    world.waiting.remove("a")
    assert world.stored() == [2, 3]
    world.now = 10 * MINUTE
    world.report("q", 4)
    assert world.stored() == []


def test_observers_keep_reports_that_followers_do_not_need(world):
    world.waiting.add(StoredObserver("a", "q", "http://127.0.0.1:1/", "", 0))
    world.kept.follow("q")
    world.report("q", *range(1, 31))
    assert (world.stored(), world.after(0)) == (list(range(1, 31)), list(range(21, 31)))
    world.now = 10 * MINUTE
    world.report("q", 31)
    assert world.stored() == list(range(1, 32))


def test_kept_reports_of_a_silent_query_leave_when_nobody_comes_back(world):
    world.kept.follow("q")
    world.report("q", 1)
    world.now = 2 * MINUTE
    world.waiting.expire()
    assert (world.stored(), world.store.followed_queries()) == ([], set())


@pytest.mark.parametrize(("followed", "again", "kept"), [(0, False, 1), (4, False, 4), (30, False, 10), (0, True, 10)])
def test_reports_are_kept_for_as_long_as_a_query_was_followed(world, followed, again, kept):
    """A short look at a query causes writes for a minute, and a follower that has come back once for ten."""
    world.kept.follow("q", again=again)
    world.now = followed * MINUTE
    world.kept.expect("q")
    world.now += kept * MINUTE - 1
    world.report("q", 1)
    assert world.stored() == [1]
    world.now += MINUTE // 6
    world.report("q", 2)
    assert world.stored() == []


def test_large_reports_are_not_written_for_followers(world):
    world.most = 8 * 2**20
    world.restart()
    world.kept.follow("q")
    world.report("q", 1)
    with world.store.transaction():
        large = Report("q", 2, 2, QueryForm.SELECT, ("x" * 65_536,), ())
        assert world.waiting.body(large) is None
    world.report("q", 3)
    assert world.after(0) == [3]


def test_reports_of_which_the_removal_fails_are_removed_later(world):
    world.kept.follow("q")
    for number in range(1, 101):
        # Each removal fails at first.
        world.report("q", number, fails=world.kept._recent.dropped_bytes + SIZE > MOST // 8)
        if world.kept._recent.dropped_bytes > MOST // 8:
            world.report("q", number)
        assert len(world.stored()) <= 10 + 7
    assert world.after(0) == list(range(91, 101))


def test_a_query_is_marked_with_the_first_report_that_can_be_stored(world, monkeypatch):
    """The disk is full when the follower comes."""
    world.followed.add("q")

    def full(_query):
        raise StorageFailed("full")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "mark_followed", full)
        with pytest.raises(StorageFailed):
            world.kept.follow("q")
    world.report("q", 1, fails=True)
    assert world.store.followed_queries() == set()
    world.report("q", 1, 2)
    world.restart()
    assert world.after(0) == [1, 2]


def test_reports_are_removed_only_with_their_acknowledgements(world):
    """Otherwise an observer would count them as lost after a crash."""
    world.waiting.add(StoredObserver("a", "q", "http://127.0.0.1:1/", "", 0))
    world.kept.follow("q")
    for number in range(1, 31):
        world.report("q", number)
        world.waiting.acknowledged("a", number)
        (stored,) = world.store.observers()
        assert stored.acknowledged >= world.stored()[0] - 1
    assert world.stored()[0] > 1


def test_kept_reports_are_not_merged_for_a_slow_observer(world):
    world.waiting.add(StoredObserver("a", "q", "http://127.0.0.1:1/", "", 0))
    world.kept.follow("q")
    world.report("q", *range(1, 31))
    waiting = WaitingReports(world.store, 5 * SIZE, world.kept)
    waiting.bound("q", StreamOperator.RSTREAM)
    assert world.after(0) == list(range(21, 31))
    reports = waiting.waiting("a", -1)
    assert len(reports) < 30
    assert sum(report.merged for report in reports) == 30


def test_a_report_that_is_too_large_leaves_no_gap(world):
    world.kept.follow("q")
    world.report("q", 1, 2)
    with world.store.transaction():
        large = Report("q", 3, 3, QueryForm.SELECT, ("x" * 20 * SIZE,), ())
        assert world.waiting.body(large) is None
    assert world.after(0) == []
    world.report("q", 4)
    world.restart()
    assert world.after(0) == [4]


def test_a_query_that_was_registered_again_has_no_reports_of_the_earlier_one(world):
    world.kept.follow("q")
    world.report("q", 1, 2)
    with world.store.transaction():
        world.store.drop_query("q")
    world.waiting.forget("q")
    world.report("q", 1)
    assert world.stored() == []
    world.restart()
    world.report("q", 2)
    assert world.stored() == []


def test_nothing_is_kept_without_bytes_for_it(tmp_path):
    world = World(tmp_path)
    world.kept.follow("q")
    world.report("q", 1)
    world.most = 0
    world.restart()
    world.report("q", 2)
    assert world.stored() == []
    world.kept.follow("q")
    assert world.store.followed_queries() == set()
    world.store.close()
