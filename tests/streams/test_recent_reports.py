"""Reports that are kept for followers whose connection is lost: for how long, and how many bytes of them."""

from __future__ import annotations

import pytest

from edge.streams.recent_reports import RecentReports
from edge.streams.report_merge import OVERHEAD

MINUTE = 60_000_000
BODY = 700
SIZE = BODY + OVERHEAD


def keep(recent, query, *numbers, size=BODY):
    for number in numbers:
        recent.keep(query, number, size + OVERHEAD)


def numbers(recent, query):
    return list(recent.numbers(query))


def test_reports_are_kept_by_query():
    recent = RecentReports(100 * SIZE)
    keep(recent, "q", 3, 4, 5)
    keep(recent, "other", 4)
    assert numbers(recent, "q") == [3, 4, 5]
    assert numbers(recent, "other") == [4]
    assert numbers(recent, "unknown") == []
    assert (recent.bytes, recent.size("q"), recent.size("unknown")) == (4 * SIZE, 3 * SIZE, 0)


def test_a_report_that_is_kept_already_changes_nothing():
    recent = RecentReports(12 * SIZE)
    keep(recent, "q", 1, 2, 2, 1)
    assert (numbers(recent, "q"), recent.bytes) == ([1, 2], 2 * SIZE)


def test_reports_before_one_that_is_missing_are_not_kept():
    recent = RecentReports(12 * SIZE)
    keep(recent, "q", 1, 2, 4)
    assert (numbers(recent, "q"), recent.bytes, recent.dropped_bytes) == ([4], SIZE, 2 * SIZE)
    assert (recent.take_dropped(), recent.take_dropped(), recent.dropped_bytes) == ({"q"}, set(), 0)


def test_a_query_keeps_the_newest_of_its_part():
    recent = RecentReports(12 * SIZE)
    keep(recent, "q", *range(1, 1_001))
    assert numbers(recent, "q") == [998, 999, 1_000]
    assert recent.bytes == 3 * SIZE


def test_the_oldest_reports_of_all_queries_are_dropped_beyond_the_limit():
    recent = RecentReports(12 * SIZE)
    for number in (1, 2, 3):
        for query in "abcde":
            keep(recent, query, number)
    assert [numbers(recent, query) for query in "abcde"] == [[2, 3], [2, 3], [2, 3], [1, 2, 3], [1, 2, 3]]
    assert recent.bytes == 12 * SIZE


def test_a_report_that_is_too_large_leaves_no_gap_among_those_that_are_kept():
    recent = RecentReports(12 * SIZE)
    keep(recent, "q", 1, 2)
    keep(recent, "q", 3, size=4 * SIZE)
    assert numbers(recent, "q") == []
    keep(recent, "q", 4)
    assert (numbers(recent, "q"), recent.bytes) == ([4], SIZE)


def test_reports_are_kept_while_a_query_has_followers_and_for_ten_minutes_after():
    recent = RecentReports(12 * SIZE)
    assert not recent.wants("q", 0)
    recent.expect("q", MINUTE)
    assert recent.wants("q", 10 * MINUTE)
    assert not recent.wants("q", 11 * MINUTE)
    recent.expect("q", 20 * MINUTE)
    assert recent.wants("q", 21 * MINUTE)


def test_a_query_that_has_ended_is_forgotten():
    recent = RecentReports(12 * SIZE)
    recent.expect("q", 0)
    keep(recent, "q", 1, 2)
    recent.forget("q")
    assert (numbers(recent, "q"), recent.bytes, recent.wants("q", 1)) == ([], 0, False)


@pytest.mark.parametrize("most", [0, SIZE])
def test_little_or_no_memory_keeps_nothing(most):
    recent = RecentReports(most)
    recent.expect("q", 0)
    assert recent.wants("q", 1) == bool(most)
    keep(recent, "q", 1)
    assert numbers(recent, "q") == []
