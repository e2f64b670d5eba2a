"""The scheduler when another component fails, and its shutdown."""

from __future__ import annotations

import threading

import pyoxigraph as ox
import pytest
from scheduler_harness import WAIT, Client, House, insert

from edge.engine.requests import Notification, QueryRequest, SubscribeFailed, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import NotFound, NotReady
from tests.support.waiting import wait_for


def test_a_sink_that_fails_ends_its_subscription_and_harms_nobody_else(open_house, caplog):
    house = open_house()
    items: list[Notification | SubscribeFailed] = []

    def broken(item: Notification | SubscribeFailed) -> None:
        items.append(item)
        if len(items) == 2:
            raise RuntimeError("broken sink")

    query = QueryRequest("SELECT ?o { ?s <a:p> ?o }")
    spuid = house.scheduler.subscribe(query, broken).result(WAIT).spuid
    client = Client(house)
    house.update(insert(1))
    house.update(insert(2))
    with pytest.raises(NotFound):
        house.scheduler.unsubscribe(spuid).result(WAIT)
    assert client.told() == [(0, [], []), (1, [1], []), (2, [2], [])]
    assert [type(item) for item in items] == [Notification, Notification, SubscribeFailed]
    assert house.scheduler.subscription_faults == 1
    assert house.scheduler.ready
    assert "broken sink" in caplog.text


def test_a_sink_that_fails_at_once_is_not_subscribed(open_house):
    house = open_house()

    def broken(item: Notification | SubscribeFailed) -> None:
        raise RuntimeError("broken sink")

    with pytest.raises(RuntimeError, match="broken sink"):
        house.scheduler.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), broken).result(WAIT)
    assert house.scheduler.subscriptions == 0
    house.update(insert(1))


def test_a_loader_that_fails_in_an_unforeseen_way_stops_nothing(open_house):
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


def test_close_carries_out_what_waits(tmp_path):
    house = House(tmp_path)
    house.busy()
    client = Client(house)
    futures = [house.queue(insert(value)) for value in range(20)]
    closing = threading.Thread(target=house.scheduler.close, args=(WAIT,))
    closing.start()
    wait_for(lambda: not house.scheduler.ready)
    house.door.set()
    closing.join(WAIT)
    assert all(future.result(0) for future in futures)
    assert len(client.told()) == 21
    again = House(tmp_path)
    assert again.values() == list(range(20))
    assert again.scheduler.close(WAIT)


def test_close_refuses_what_cannot_be_carried_out_in_time(tmp_path):
    house = House(tmp_path)
    running = house.busy()
    waiting = [house.queue(insert(value)) for value in range(3)]
    subscription = Client(house)
    assert house.scheduler.close(0.2) is False
    for future in (*waiting, subscription.future):
        assert isinstance(future.exception(0), NotReady)
    house.door.set()
    running.result(WAIT)
    assert house.scheduler.close(WAIT)
    again = House(tmp_path)
    assert again.values() == []
    assert again.scheduler.close(WAIT)


def test_nothing_is_taken_after_close(open_house):
    house = open_house()
    house.update(insert(1))
    assert house.scheduler.close(WAIT)
    for future in (
        house.queue(insert(2)),
        house.scheduler.query(QueryRequest("ASK {}")),
        house.scheduler.subscribe(QueryRequest("ASK {}"), lambda item: None),
        house.scheduler.unsubscribe("sepa://subscription/x"),
        house.scheduler.update([UpdateRequest("#" + "x" * 100_000)]),
    ):
        assert isinstance(future.exception(WAIT), NotReady)
    assert not house.scheduler.ready
    assert house.scheduler.close(WAIT), "closing twice does no harm"


def test_queries_that_wait_at_close_are_answered_or_refused(open_house):
    house = open_house(query_workers=1)
    begun, door = threading.Event(), threading.Event()

    def wait(answer: object) -> bool:
        begun.set()
        return door.wait(WAIT)

    first = house.scheduler.read(QueryRequest("ASK {}"), wait)
    waiting = [house.scheduler.query(QueryRequest("ASK {}")) for _ in range(3)]
    assert begun.wait(WAIT)
    closing = threading.Thread(target=house.scheduler.close, args=(WAIT,))
    closing.start()
    wait_for(lambda: not house.scheduler.ready)
    door.set()
    closing.join(WAIT)
    assert first.result(WAIT)
    for future in waiting:
        assert isinstance(future.exception(WAIT), NotReady | None)
