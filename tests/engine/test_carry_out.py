"""Turns of the writer on the thread of a caller that would otherwise wait for its update."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from scheduler_harness import WAIT, Client, Harness, insert

from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.protocol.errors import NotReady
from tests.support.waiting import wait_for


@pytest.fixture
def harness(open_harness) -> Harness:
    return open_harness()


def queue(harness: Harness, text: str) -> Future[Exception | None]:
    """Queue an update without waking the writer."""
    future: Future[Exception | None] = Future()
    harness.scheduler.write([UpdateRequest(text)], b"", future.set_result)
    return future


def test_an_idle_writer_leaves_the_update_and_its_notification_to_the_caller(harness: Harness):
    threads: list[threading.Thread] = []

    def sink(_: SubscriberNotification | SubscribeFailed) -> None:
        threads.append(threading.current_thread())

    harness.scheduler.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), sink).result(WAIT)
    wait_for(lambda: threads and not harness.scheduler._writer._turn.locked())
    threads.clear()
    future = queue(harness, insert(1))
    harness.scheduler.carry_out()
    assert future.done()
    assert threads == [threading.current_thread()]
    assert harness.values() == [1]


@pytest.mark.parametrize("awaited", [False, True])
def test_an_answer_waits_for_the_notification_of_an_awaited_subscription(harness: Harness, awaited):
    notified = threading.Event()
    order: list[str] = []

    def sink(item: SubscriberNotification | SubscribeFailed) -> None:
        assert isinstance(item, SubscriberNotification)
        if item.sequence == 1:
            order.append("notification")
            notified.set()

    query = QueryRequest("SELECT ?o { ?s <a:p> ?o }")
    subscription = harness.scheduler.subscribe(query, sink, awaited=awaited).result(WAIT)
    for text in (insert(1), "INSERT DATA { <a:s> <a:of-no-concern> 1 }"):
        harness.scheduler.update([UpdateRequest(text)]).add_done_callback(lambda _: order.append("answer"))
        harness.scheduler.on_writer(lambda: None).result(WAIT)
    assert notified.is_set()
    assert order == [*(["notification", "answer"] if awaited else ["answer", "notification"]), "answer"]
    harness.scheduler.unsubscribe(subscription.spuid).result(WAIT)
    assert not harness.scheduler._engine.spus.registry.awaited


def test_a_caller_does_not_wait_for_a_busy_writer_which_then_does_the_work(harness: Harness):
    busy = harness.busy()
    future = queue(harness, insert(1))
    harness.scheduler.carry_out()
    assert not future.done()
    harness.door.set()
    busy.result(WAIT)
    assert future.result(WAIT) is None


def test_a_caller_can_wait_for_the_turn_of_a_busy_writer(harness: Harness):
    busy = harness.busy()
    future = queue(harness, insert(1))
    caller = threading.Thread(target=lambda: harness.scheduler.carry_out(wait=True))
    caller.start()
    assert not future.done()
    harness.door.set()
    caller.join(WAIT)
    assert busy.done()
    assert future.done()


def test_the_writer_takes_over_the_rest_of_a_turn(harness: Harness):
    """A turn carries out one task, here one that waits longer than the update."""
    tasks = [harness.scheduler.on_writer(lambda: None) for _ in range(3)]
    futures = [queue(harness, insert(value)) for value in range(3)]
    harness.scheduler.carry_out()
    for task in tasks:
        task.result(WAIT)
    assert [future.result(WAIT) for future in futures] == [None] * 3
    assert harness.values() == [0, 1, 2]


def test_the_writer_flushes_the_changes_of_a_caller_in_time(open_harness, tmp_path: Path):
    harness: Harness = open_harness(tmp_path, durability="interval", flush_interval=0.1)
    harness.update(insert(1))
    wait_for(lambda: not harness.scheduler._journal.unflushed)
    queue(harness, insert(2))
    harness.scheduler.carry_out()
    wait_for(lambda: not harness.scheduler._journal.unflushed)


def test_no_turn_begins_after_the_end(harness: Harness):
    assert harness.scheduler.close()
    harness.scheduler.carry_out()
    with pytest.raises(NotReady):
        queue(harness, insert(1))


def test_many_callers_keep_the_order_of_each(harness: Harness):
    client = Client(harness)
    client.future.result(WAIT)
    numbers = itertools.count()
    futures: list[Future[Exception | None]] = []

    def work(name: str) -> None:
        for step in range(40):
            text = f"INSERT DATA {{ <a:{name}> <a:p> {next(numbers)} . <a:{name}> <a:step> {step} }}"
            futures.append(queue(harness, text))
            harness.scheduler.carry_out()

    threads = [threading.Thread(target=work, args=(name,)) for name in "bcdef"]
    for thread in threads:
        thread.start()
    for step in range(40):
        harness.update(f"INSERT DATA {{ <a:a> <a:q> {step} }}")
    for thread in threads:
        thread.join(WAIT)
    assert [future.result(WAIT) for future in futures] == [None] * 200
    added = sorted(value for _, values, _ in client.received() for value in values)
    assert added == list(range(200))
