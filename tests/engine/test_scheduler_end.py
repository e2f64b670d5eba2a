"""The scheduler when another component fails, and its shutdown."""

from __future__ import annotations

import threading

import pyoxigraph as ox
import pytest
from scheduler_harness import WAIT, Client, Harness, insert

from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import NotFound, NotReady
from tests.support.waiting import wait_for


def test_a_failing_sink_ends_only_its_subscription(open_harness, caplog):
    harness = open_harness()
    items: list[SubscriberNotification | SubscribeFailed] = []

    def broken(item: SubscriberNotification | SubscribeFailed) -> None:
        items.append(item)
        if len(items) == 2:
            raise RuntimeError("broken sink")

    query = QueryRequest("SELECT ?o { ?s <a:p> ?o }")
    spuid = harness.scheduler.subscribe(query, broken).result(WAIT).spuid
    client = Client(harness)
    harness.update(insert(1))
    harness.update(insert(2))
    with pytest.raises(NotFound):
        harness.scheduler.unsubscribe(spuid).result(WAIT)
    assert client.received() == [(0, [], []), (1, [1], []), (2, [2], [])]
    assert [type(item) for item in items] == [SubscriberNotification, SubscriberNotification, SubscribeFailed]
    assert harness.scheduler.subscription_faults == 1
    assert harness.scheduler.ready
    assert "broken sink" in caplog.text


def test_a_sink_that_fails_at_once_is_not_subscribed(open_harness):
    harness = open_harness()

    def broken(item: SubscriberNotification | SubscribeFailed) -> None:
        raise RuntimeError("broken sink")

    with pytest.raises(RuntimeError, match="broken sink"):
        harness.scheduler.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), broken).result(WAIT)
    assert harness.scheduler.subscriptions == 0
    harness.update(insert(1))


def test_a_loader_that_fails_in_an_unforeseen_way_stops_nothing(open_harness):
    def load(document: str) -> list[ox.Quad]:
        raise ZeroDivisionError

    scheduler = open_engine(None, EngineSettings(allow_load=True), load=load)
    try:
        update = UpdateRequest(f"{insert(1)} ; LOAD <http://example.org/x>")
        with pytest.raises(ZeroDivisionError):
            scheduler.update([update]).result(WAIT)
        scheduler.update([UpdateRequest(insert(2))]).result(WAIT)
        assert scheduler.quads == 1
    finally:
        assert scheduler.close(WAIT)


# Shutdown


def test_close_executes_waiting_requests(tmp_path):
    harness = Harness(tmp_path)
    harness.busy()
    client = Client(harness)
    futures = [harness.queue(insert(value)) for value in range(20)]
    closing = threading.Thread(target=harness.scheduler.close, args=(WAIT,))
    closing.start()
    wait_for(lambda: not harness.scheduler.ready)
    harness.door.set()
    closing.join(WAIT)
    assert all(future.result(0) for future in futures)
    assert len(client.received()) == 21
    again = Harness(tmp_path)
    assert again.values() == list(range(20))
    assert again.scheduler.close(WAIT)


def test_close_refuses_requests_that_take_too_long(tmp_path):
    harness = Harness(tmp_path)
    running = harness.busy()
    waiting = [harness.queue(insert(value)) for value in range(3)]
    subscription = Client(harness)
    assert harness.scheduler.close(0.2) is False
    for future in (*waiting, subscription.future):
        assert isinstance(future.exception(0), NotReady)
    harness.door.set()
    running.result(WAIT)
    assert harness.scheduler.close(WAIT)
    again = Harness(tmp_path)
    assert again.values() == []
    assert again.scheduler.close(WAIT)


def test_requests_after_close_are_refused(open_harness):
    harness = open_harness()
    harness.update(insert(1))
    assert harness.scheduler.close(WAIT)
    for future in (
        harness.queue(insert(2)),
        harness.scheduler.query(QueryRequest("ASK {}")),
        harness.scheduler.subscribe(QueryRequest("ASK {}"), lambda item: None),
        harness.scheduler.unsubscribe("sepa://subscription/x"),
        harness.scheduler.update([UpdateRequest("#" + "x" * 100_000)]),
    ):
        assert isinstance(future.exception(WAIT), NotReady)
    assert not harness.scheduler.ready
    assert harness.scheduler.close(WAIT), "closing twice does no harm"


def test_queries_that_wait_at_close_are_answered_or_refused(open_harness):
    harness = open_harness(query_workers=1)
    begun, door = threading.Event(), threading.Event()

    def wait(answer: object) -> bool:
        begun.set()
        return door.wait(WAIT)

    first = harness.scheduler.read(QueryRequest("ASK {}"), wait)
    waiting = [harness.scheduler.query(QueryRequest("ASK {}")) for _ in range(3)]
    assert begun.wait(WAIT)
    closing = threading.Thread(target=harness.scheduler.close, args=(WAIT,))
    closing.start()
    wait_for(lambda: not harness.scheduler.ready)
    door.set()
    closing.join(WAIT)
    assert first.result(WAIT)
    for future in waiting:
        assert isinstance(future.exception(WAIT), NotReady | None)
