"""The queue of a follower: order, merging, limits, and its end."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pyoxigraph as ox
import pytest

from edge.engine.admission.byte_quota import ByteQuota
from edge.protocol.errors import NotFound, TooManyRequests
from edge.streams import followed_reports, report_merge
from edge.streams.followed_reports import FollowedReports, stored
from edge.streams.model import QueryForm, StreamOperator
from edge.streams.report import Report


class Queue:
    """A queue with its quota and its calls."""

    def __init__(self, operator=StreamOperator.RSTREAM, most=10_000, quota=None, largest=None):
        self.quota = quota or ByteQuota()
        self.woken = 0
        self.closed = []
        charge = self.quota.charge("client")
        self.reports = FollowedReports("q", 7, operator, most, largest, charge, self._wake, self.closed.append)

    def _wake(self):
        self.woken += 1

    def put(self, *numbers, size=1, removed=None, form=QueryForm.SELECT):
        for number in numbers:
            rows = ((ox.Literal(f"{number}" + "x" * size),),)
            self.reports.put(stored(Report("q", number, number * 1_000_000, form, ("v",), rows, removed)))

    def take(self):
        text = self.reports.take()
        return None if text is None else json.loads(text)["report"]

    def all(self):
        return list(iter(self.take, None))


def numbers(reports):
    return [(report["number"], report["merged"]) for report in reports]


def test_reports_are_taken_in_order_with_their_numbers_and_times():
    queue = Queue()
    queue.put(8, 9)
    assert queue.woken == 2
    first, second = queue.all()
    assert first == {
        "query": "q",
        "number": 8,
        "time": "1970-01-01T00:00:08.000000Z",
        "merged": 1,
        "content_type": "application/sparql-results+json",
        "content": {
            "head": {"vars": ["v"]},
            "results": {"bindings": [{"v": {"type": "literal", "value": "8x"}}]},
        },
    }
    assert second["number"] == 9
    assert queue.quota.total == 0


def test_a_correction_is_marked_and_has_the_removed_rows():
    queue = Queue()
    queue.put(8, removed=((ox.Literal("wrong"),),))
    (report,) = queue.all()
    assert report["correction"] is True
    assert report["content"]["removed"]["bindings"] == [{"v": {"type": "literal", "value": "wrong"}}]


def test_graphs_are_text():
    queue = Queue()
    rows = ((ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal('"\n')),)
    queue.reports.put(stored(Report("q", 8, 0, QueryForm.CONSTRUCT, ("s", "p", "o"), rows)))
    (report,) = queue.all()
    assert report["content_type"] == "application/n-triples"
    assert report["content"] == '<urn:s> <urn:p> "\\"\\n" .\n'


@pytest.mark.parametrize("size", [1, 1_000])
def test_whole_results_replace_older_ones_beyond_the_limit(size):
    queue = Queue(most=20_000)
    queue.put(*range(8, 1_008), size=size)
    assert queue.quota.total <= 20_000
    reports = queue.all()
    assert numbers(reports)[-1][0] == 1_007
    covered = [number for last, merged in numbers(reports) for number in range(last - merged + 1, last + 1)]
    assert covered == list(range(8, 1_008))


@pytest.mark.parametrize("size", [1, 1_000])
def test_changes_are_added_up_and_the_oldest_are_dropped_beyond_the_limit(size):
    queue = Queue(StreamOperator.ISTREAM, most=20_000)
    queue.put(*range(8, 1_008), size=size)
    assert queue.quota.total <= 20_000
    reports = queue.all()
    covered = [number for last, merged in numbers(reports) for number in range(last - merged + 1, last + 1)]
    assert covered == list(range(covered[0], 1_008))
    values = [row["v"]["value"] for report in reports for row in report["content"]["results"]["bindings"]]
    assert values == [f"{number}" + "x" * size for number in covered]


def test_reports_are_not_added_up_beyond_the_largest_message():
    queue = Queue(StreamOperator.ISTREAM, most=100_000, largest=3_000)
    queue.put(*range(8, 1_008), size=300)
    queue.put(1_008, size=5_000)
    reports = queue.all()
    assert 1 < max(report["merged"] for report in reports) < 10
    assert max(len(json.dumps(report["content"])) for report in reports[:-1]) < 3_100
    assert numbers(reports)[-1] == (1_008, 1)


@pytest.mark.parametrize("operator", [StreamOperator.RSTREAM, StreamOperator.ISTREAM])
def test_reports_without_content_are_merged_beyond_the_limit_too(operator):
    queue = Queue(operator, most=20_000)
    for number in range(8, 1_008):
        queue.reports.put(stored(Report("q", number, 0, QueryForm.CONSTRUCT, ("s", "p", "o"), ())))
        assert queue.quota.total <= 20_000
    reports = queue.all()
    assert sum(report["merged"] for report in reports) == 1_000
    assert numbers(reports)[-1][0] == 1_007


def test_a_report_counts_until_the_client_has_accepted_it():
    queue = Queue()
    queue.put(8, 9, size=1_000)
    queue.take()
    assert queue.quota.total > 2_000
    queue.take()
    assert 1_000 < queue.quota.total < 2_000
    assert queue.take() is None
    assert queue.quota.total == 0


def test_a_report_that_is_being_sent_counts_also_after_the_client_holds_too_much():
    queue = Queue(most=10**6, quota=ByteQuota(5_000, 5_000))
    queue.put(8, size=500)
    queue.take()
    queue.put(*range(9, 30), size=500)
    assert isinstance(queue.reports.error, TooManyRequests)
    assert 500 < queue.quota.total < 1_500
    queue.reports.close()
    assert queue.quota.total == 0


def test_reports_that_were_made_before_are_ignored():
    """The last report of the query may become durable only after the queue has begun."""
    queue = Queue()
    queue.put(6, 7, 8)
    assert numbers(queue.all()) == [(8, 1)]


def test_reports_can_be_taken_while_others_are_merged(monkeypatch):
    queue = Queue(StreamOperator.ISTREAM, most=5_000)
    taken = []

    def bounded(*arguments, **options):
        with ThreadPoolExecutor(1) as other:
            taken.append(other.submit(queue.reports.take).result(20))
        return report_merge.bounded(*arguments, **options)

    monkeypatch.setattr(followed_reports, "bounded", bounded)
    queue.put(*range(8, 20), size=1_000)
    assert set(taken) == {None}
    assert numbers(queue.all())[-1][0] == 19
    assert queue.quota.total == 0


def test_a_client_that_holds_too_much_gets_no_more_reports():
    queue = Queue(most=10**6, quota=ByteQuota(5_000, 5_000))
    queue.put(*range(8, 30), size=500)
    assert queue.all() == []
    assert isinstance(queue.reports.error, TooManyRequests)
    assert queue.quota.total == 0


def test_waiting_reports_are_sent_before_the_end():
    queue = Queue()
    queue.put(8)
    queue.reports.end("The query has been ended")
    queue.put(9)
    assert numbers(queue.all()) == [(8, 1)]
    assert isinstance(queue.reports.error, NotFound)
    assert queue.reports.error.description == "The query has been ended"


def test_a_closed_queue_holds_nothing():
    queue = Queue()
    queue.put(8)
    queue.reports.close()
    queue.put(9)
    assert queue.all() == []
    assert queue.quota.total == 0
    assert queue.closed == [queue.reports]
