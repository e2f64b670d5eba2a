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


def test_requests_are_carried_out_in_the_order_in_which_they_came(open_house):
    house = open_house()
    house.busy()
    first = house.queue(insert(1))
    early = Client(house)
    second = house.queue("DELETE { ?s ?p 1 } INSERT { ?s ?p 2 } WHERE { ?s ?p 1 }")
    late = Client(house)
    third = house.queue("DELETE { ?s ?p 2 } INSERT { ?s ?p 3 } WHERE { ?s ?p 2 }")
    assert not any(future.done() for future in (first, early.future, second, late.future, third))
    house.door.set()
    third.result(WAIT)
    house.scheduler.unsubscribe(late.future.result(WAIT).spuid).result(WAIT)
    house.update(insert(4))
    house.scheduler.unsubscribe(early.future.result(WAIT).spuid).result(WAIT)
    assert early.told() == [(0, [1], []), (1, [2], [1]), (2, [3], [2]), (3, [4], [])]
    assert late.told() == [(0, [2], []), (1, [3], [2])]


def test_unsubscribed_means_silent(open_house):
    house = open_house()
    client = Client(house)
    spuid = client.future.result(WAIT).spuid
    house.busy()
    gone = house.scheduler.unsubscribe(spuid)
    update = house.queue(insert(1))
    house.door.set()
    gone.result(WAIT)
    update.result(WAIT)
    house.scheduler.query(QueryRequest("ASK {}")).result(WAIT)
    assert client.told() == [(0, [], [])]
    with pytest.raises(NotFound):
        house.scheduler.unsubscribe(spuid).result(WAIT)


def test_sequence_0_comes_before_the_subscription_is_acknowledged(open_house):
    house = open_house()
    for _ in range(20):
        client = Client(house)
        client.future.result(WAIT)
        assert client.told() == [(0, [], [])]


def test_many_threads_lose_nothing(open_house):
    house = open_house()
    client = Client(house)

    def publish(start: int) -> None:
        for value in range(start, start + 50):
            house.queue(insert(value)).result(WAIT)

    threads = [threading.Thread(target=publish, args=(start,)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    expected = sorted(value for start in (0, 100, 200, 300) for value in range(start, start + 50))
    assert house.values() == expected
    house.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
    told = client.told()
    assert [sequence for sequence, _, _ in told] == list(range(201))
    assert sorted(value for _, added, _ in told for value in added) == expected
    assert house.scheduler.quads == 200


# Limits


def test_more_pending_updates_than_the_setting_are_refused(open_house):
    house = open_house(max_pending_updates=2)
    house.busy()
    waiting = [house.queue(insert(1)), house.queue(insert(2))]
    with pytest.raises(TooManyRequests, match="max_pending_updates"):
        house.queue(insert(3)).result(0)
    with pytest.raises(TooManyRequests):
        house.queue(insert(3), insert(4)).result(0)
    subscription = Client(house)
    house.door.set()
    for future in waiting:
        future.result(WAIT)
    subscription.future.result(WAIT)
    wait_for(lambda: house.scheduler.pending_updates == 0)
    house.update(insert(5))
    assert house.values() == [1, 2, 5]


def test_more_pending_queries_than_the_setting_are_refused(open_house):
    house = open_house(max_pending_queries=2, query_workers=1)
    door = threading.Event()
    reading = [house.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT)) for _ in range(2)]
    with pytest.raises(TooManyRequests, match=r"queries of this client are waiting.*max_pending_queries"):
        house.scheduler.query(QueryRequest("ASK {}")).result(0)
    door.set()
    assert all(future.result(WAIT) for future in reading)
    wait_for(lambda: house.scheduler.pending_queries == 0)
    assert house.scheduler.query(QueryRequest("ASK {}")).result(WAIT) is True


def test_a_query_that_was_cancelled_in_time_is_not_answered(open_house):
    house = open_house(query_workers=1)
    door = threading.Event()
    first = house.scheduler.read(QueryRequest("ASK {}"), lambda answer: door.wait(WAIT))
    second = house.scheduler.query(QueryRequest("ASK {}"))
    assert second.cancel()
    door.set()
    assert first.result(WAIT)
    wait_for(lambda: house.scheduler.pending_queries == 0)


def test_pending_updates_are_counted_exactly(open_house):
    house = open_house()

    def publish() -> None:
        futures = [house.queue("INSERT DATA { }") for _ in range(300)]
        for future in futures:
            future.result(WAIT)

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    wait_for(lambda: house.scheduler.pending_updates == 0)


# Concurrent queries and updates


def test_queries_do_not_wait_for_an_update(open_house, monkeypatch):
    house = open_house()
    house.update(insert(1))
    wait_for(lambda: house.values() == [1])
    commit = house.scheduler._journal.commit

    def wait(*arguments):
        house.wait()
        return commit(*arguments)

    monkeypatch.setattr(house.scheduler._journal, "commit", wait)
    running = house.queue(f"{insert(2)} ; {insert(3)}")
    assert house.at_the_door.wait(WAIT)
    house.queue(insert(4))
    assert house.values() == [1], "what is committed, and nothing of what is running"
    assert not running.done()
    house.door.set()
    running.result(WAIT)
    wait_for(lambda: house.values() == [1, 2, 3, 4])


def test_a_query_sees_what_was_acknowledged_before_it(open_house):
    house = open_house()
    for value in range(50):
        house.update(insert(value))
        # The publisher is notified after the commit, shortly before readers can see it.
        wait_for(lambda expected=value: house.values() == list(range(expected + 1)))
