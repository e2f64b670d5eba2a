"""Waiting reports: acknowledgements of one turn are stored together, and a lost one repeats a report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge.protocol.errors import StorageFailed
from edge.streams.model import StreamOperator
from edge.streams.store import StreamStore
from edge.streams.stored_rows import ReportRow, StoredObserver
from edge.streams.waiting import WaitingReports


class CountedStore(StreamStore):
    """Counts transactions, and refuses them if the disk is full."""

    commits = 0
    full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.full:
            raise StorageFailed("full")
        with super().transaction():
            yield
        self.commits += 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CountedStore]:
    store = CountedStore(tmp_path)
    yield store
    store.close()


def observed(store: CountedStore) -> WaitingReports:
    """Return two observers of the query "q", which has two reports."""
    waiting = WaitingReports(store, 1_000_000)
    for name in ("a", "b"):
        waiting.add(StoredObserver(name, "q", "http://127.0.0.1:1/", "", 0))
    with store.transaction():
        for number in (1, 2):
            store.report("q", ReportRow(number, number, "select", 1, b"{}"))
    return waiting


def numbers(waiting: WaitingReports, observer: str) -> list[int]:
    return [report.number for report in waiting.waiting(observer, -1)]


def test_acknowledgements_are_stored_in_one_transaction(store: CountedStore) -> None:
    waiting = observed(store)
    before = store.commits
    waiting.acknowledged("a", 1)
    waiting.acknowledged("b", 2)
    waiting.acknowledged("a", 2)
    assert store.commits == before
    assert numbers(waiting, "a") == numbers(waiting, "b") == []
    waiting.flush()
    waiting.flush()
    assert store.commits == before + 1
    assert store.reports("q", 0, -1) == []
    assert [each.acknowledged for each in WaitingReports(store, 1).observers] == [2, 2]


def test_reports_stay_for_the_slowest_observer(store: CountedStore) -> None:
    waiting = observed(store)
    waiting.acknowledged("a", 2)
    waiting.flush()
    assert numbers(waiting, "b") == [1, 2]
    waiting.acknowledged("b", 1)
    waiting.flush()
    assert [row.number for row in store.reports("q", 0, -1)] == [2]


def test_a_lost_acknowledgement_repeats_a_report(store: CountedStore) -> None:
    observed(store).acknowledged("a", 1)
    assert numbers(WaitingReports(store, 1_000_000), "a") == [1, 2]


def test_acknowledgements_wait_for_a_full_disk(store: CountedStore) -> None:
    waiting = observed(store)
    waiting.acknowledged("a", 2)
    store.full = True
    with pytest.raises(StorageFailed):
        waiting.flush()
    store.full = False
    waiting.flush()
    assert WaitingReports(store, 1).find("a") == waiting.find("a")


def test_an_observer_that_has_ended_is_not_stored(store: CountedStore) -> None:
    waiting = observed(store)
    waiting.acknowledged("a", 1)
    waiting.remove("a")
    waiting.acknowledged("b", 1)
    waiting.forget("q")
    before = store.commits
    waiting.flush()
    assert store.commits == before


def test_the_removal_of_an_observer_keeps_the_acknowledgements_of_others(store: CountedStore) -> None:
    waiting = observed(store)
    waiting.acknowledged("a", 2)
    waiting.remove("b")
    assert store.reports("q", 0, -1) == []
    assert [each.acknowledged for each in WaitingReports(store, 1).observers] == [2]


def test_a_full_disk_keeps_an_observer_and_its_reports(store: CountedStore) -> None:
    waiting = observed(store)
    waiting.acknowledged("a", 2)
    store.full = True
    with pytest.raises(StorageFailed):
        waiting.remove("b")
    store.full = False
    assert numbers(waiting, "b") == numbers(WaitingReports(store, 1), "a") == [1, 2]
    waiting.remove("b")
    assert [each.acknowledged for each in WaitingReports(store, 1).observers] == [2]


def test_no_report_is_merged_or_dropped_before_its_acknowledgement_is_stored(store: CountedStore) -> None:
    observed(store)
    waiting = WaitingReports(store, 1)
    waiting.acknowledged("a", 2)
    waiting.acknowledged("b", 1)
    waiting.bound("q", StreamOperator.ISTREAM)
    assert [row.number for row in store.reports("q", 0, -1)] == [2]
    assert [each.acknowledged for each in WaitingReports(store, 1).observers] == [2, 1]


def test_reports_without_content_are_merged_for_an_observer_that_does_not_answer(store: CountedStore) -> None:
    waiting = observed(store)
    with store.transaction():
        for number in range(3, 10_003):
            store.report("q", ReportRow(number, number, "graph", 1, b""))
    waiting.bound("q", StreamOperator.RSTREAM)
    reports = waiting.waiting("a", -1)
    assert len(reports) < 10
    assert sum(report.merged for report in reports) == 10_002
