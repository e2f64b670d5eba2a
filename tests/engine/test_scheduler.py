"""The scheduler: order, limits, and concurrency of queries and updates."""

from __future__ import annotations

import threading

import pytest
from scheduler_harness import WAIT, Client, insert

from edge.engine.requests import QueryRequest
from edge.protocol.errors import (
    NotFound,
    TooManyRequests,
)
from tests.support.waiting import wait_for

# Order


def test_requests_are_carried_out_in_the_order_in_which_they_came(open_harness):
    harness = open_harness()
    harness.busy()
    first = harness.queue(insert(1))
    early = Client(harness)
    second = harness.queue("DELETE { ?s ?p 1 } INSERT { ?s ?p 2 } WHERE { ?s ?p 1 }")
    late = Client(harness)
    third = harness.queue("DELETE { ?s ?p 2 } INSERT { ?s ?p 3 } WHERE { ?s ?p 2 }")
    assert not any(future.done() for future in (first, early.future, second, late.future, third))
    harness.door.set()
    third.result(WAIT)
    harness.scheduler.unsubscribe(late.future.result(WAIT).spuid).result(WAIT)
    harness.update(insert(4))
    harness.scheduler.unsubscribe(early.future.result(WAIT).spuid).result(WAIT)
    assert early.received() == [(0, [1], []), (1, [2], [1]), (2, [3], [2]), (3, [4], [])]
    assert late.received() == [(0, [2], []), (1, [3], [2])]


def test_no_notification_after_unsubscribed(open_harness):
    harness = open_harness()
    client = Client(harness)
    spuid = client.future.result(WAIT).spuid
    harness.busy()
    gone = harness.scheduler.unsubscribe(spuid)
    update = harness.queue(insert(1))
    harness.door.set()
    gone.result(WAIT)
    update.result(WAIT)
    harness.scheduler.query(QueryRequest("ASK {}")).result(WAIT)
    assert client.received() == [(0, [], [])]
    with pytest.raises(NotFound):
        harness.scheduler.unsubscribe(spuid).result(WAIT)


def test_sequence_0_comes_before_the_subscription_is_acknowledged(open_harness):
    harness = open_harness()
    for _ in range(20):
        client = Client(harness)
        client.future.result(WAIT)
        assert client.received() == [(0, [], [])]


def test_many_threads_lose_nothing(open_harness):
    harness = open_harness()
    client = Client(harness)

    def publish(start: int) -> None:
        for value in range(start, start + 50):
            harness.queue(insert(value)).result(WAIT)

    threads = [threading.Thread(target=publish, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    expected = sorted(value for start in (0, 100, 200, 300) for value in range(start, start + 50))
    assert harness.values() == expected
    harness.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
    received = client.received()
    assert [sequence for sequence, _, _ in received] == list(range(201))
    assert sorted(value for _, added, _ in received for value in added) == expected
    assert harness.scheduler.quads == 200


# Limits


def test_more_pending_updates_than_the_setting_are_refused(open_harness):
    harness = open_harness(max_pending_updates=2)
    harness.busy()
    waiting = [harness.queue(insert(1)), harness.queue(insert(2))]
    with pytest.raises(TooManyRequests, match="max_pending_updates"):
        harness.queue(insert(3)).result(0)
    with pytest.raises(TooManyRequests):
        harness.queue(insert(3), insert(4)).result(0)
    subscription = Client(harness)
    harness.door.set()
    for future in waiting:
        future.result(WAIT)
    subscription.future.result(WAIT)
    wait_for(lambda: harness.scheduler.pending_updates == 0)
    harness.update(insert(5))
    assert harness.values() == [1, 2, 5]


def test_more_pending_queries_than_the_setting_are_refused(open_harness):
    harness = open_harness(max_pending_queries=2, query_workers=1)
    door = threading.Event()
    reading = [harness.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT)) for _ in range(2)]
    with pytest.raises(TooManyRequests, match=r"queries of this client are waiting.*max_pending_queries"):
        harness.scheduler.query(QueryRequest("ASK {}")).result(0)
    door.set()
    assert all(future.result(WAIT) for future in reading)
    wait_for(lambda: harness.scheduler.pending_queries == 0)
    assert harness.scheduler.query(QueryRequest("ASK {}")).result(WAIT) is True


def test_a_query_that_was_cancelled_in_time_is_not_answered(open_harness):
    harness = open_harness(query_workers=1)
    door = threading.Event()
    first = harness.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT))
    second = harness.scheduler.query(QueryRequest("ASK {}"))
    assert second.cancel()
    door.set()
    assert first.result(WAIT)
    wait_for(lambda: harness.scheduler.pending_queries == 0)


def test_pending_updates_are_counted_exactly(open_harness):
    harness = open_harness()

    def publish() -> None:
        futures = [harness.queue("INSERT DATA { }") for _ in range(300)]
        for future in futures:
            future.result(WAIT)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    wait_for(lambda: harness.scheduler.pending_updates == 0)


# Concurrent queries and updates


def test_queries_do_not_wait_for_an_update(open_harness, monkeypatch):
    harness = open_harness()
    harness.update(insert(1))
    wait_for(lambda: harness.values() == [1])
    commit = harness.scheduler._journal.commit

    def wait(*arguments):
        harness.wait()
        return commit(*arguments)

    monkeypatch.setattr(harness.scheduler._journal, "commit", wait)
    running = harness.queue(f"{insert(2)} ; {insert(3)}")
    assert harness.at_the_door.wait(WAIT)
    harness.queue(insert(4))
    assert harness.values() == [1], "what is committed, and nothing of what is running"
    assert not running.done()
    harness.door.set()
    running.result(WAIT)
    wait_for(lambda: harness.values() == [1, 2, 3, 4])


def test_a_query_sees_previously_acknowledged_updates(open_harness):
    harness = open_harness()
    for value in range(50):
        harness.update(insert(value))
        # The publisher is notified after the commit, shortly before readers can see it.
        wait_for(lambda expected=value: harness.values() == list(range(expected + 1)))
