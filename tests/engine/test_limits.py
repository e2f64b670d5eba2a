"""Limits: the requests of one client neither block others forever nor fill the memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.errors import EdgeError, ResultTooLarge
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE, wait_for

WAIT = PATIENCE
CROSS = "?a ?b ?c . ?d ?e ?f . ?g ?h ?i"


@pytest.fixture
def engine() -> Iterator[Scheduler]:
    scheduler = open_engine(None, unchecked(EngineSettings, max_query_memory=512 * 1000))
    data = " ".join(f"<urn:s{n}> <urn:p> {n} ." for n in range(30))
    scheduler.update([UpdateRequest(f"INSERT DATA {{ {data} }}")]).result(WAIT)
    yield scheduler
    assert scheduler.close()


@pytest.mark.parametrize("filtered", ["", "FILTER(?c != ?i + 100)"])
def test_an_update_with_too_many_solutions_changes_nothing(engine, filtered):
    with pytest.raises(ResultTooLarge, match=r"engine\.max_query_memory"):
        engine.update([UpdateRequest(f"INSERT {{ ?a <urn:q> ?i }} WHERE {{ {CROSS} {filtered} }}")]).result(WAIT)
    assert engine.quads == 30
    assert engine.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }")]).result(WAIT)[0].added == 1


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT * {{ {CROSS} }}",
        f"SELECT * {{ {CROSS} FILTER(?c != ?i + 100) }}",
        f"CONSTRUCT {{ ?a ?c ?i }} {{ {CROSS} }}",
    ],
)
def test_a_subscription_with_too_many_solutions_is_refused(engine, query):
    with pytest.raises(ResultTooLarge):
        engine.subscribe(QueryRequest(query), lambda _: None).result(WAIT)
    assert engine.subscriptions == 0


@pytest.mark.parametrize(
    ("select", "filtered", "most"),
    [
        ("*", "", 40),
        ("*", "FILTER(?c != ?f + 100)", 40),
        ("DISTINCT *", "", 4),
        ("REDUCED * ", "MINUS { ?c <urn:q>/<urn:q>* ?f }", 4),
    ],
)
def test_a_subscription_that_grows_too_large_ends_with_the_reason_and_the_update_stays(engine, select, filtered, most):
    """The stored result is limited, and so is the change by one update. A result that is not stored may grow slowly."""
    received: list[SubscriberNotification | SubscribeFailed] = []
    query = f"SELECT {select} {{ ?a <urn:p> ?c . ?d <urn:p> ?f {filtered} }}"
    engine.subscribe(QueryRequest(query), received.append).result(WAIT)
    values = " , ".join(map(str, range(1, most + 1)))
    (outcome,) = engine.update([UpdateRequest(f"INSERT DATA {{ <urn:a> <urn:p> {values} }}")]).result(WAIT)
    assert outcome.added == most
    wait_for(lambda: isinstance(received[-1], SubscribeFailed))
    assert "engine.max_query_memory" in received[-1].description
    assert engine.subscriptions == 0


def test_an_acknowledged_update_can_be_queried(engine):
    """This holds even while notifications are delayed."""
    received = threading.Event()
    engine.subscribe(
        QueryRequest("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"), lambda _: received.wait(0.01) and None
    ).result(WAIT)
    for number in range(50):
        engine.update([UpdateRequest(f"INSERT DATA {{ <urn:x> <urn:n> {number} }}")]).result(WAIT)
        assert engine.query(QueryRequest(f"ASK {{ <urn:x> <urn:n> {number} }}")).result(WAIT) is True


def test_long_updates_keep_their_place_in_the_queue(engine):
    for number in range(20):
        long = " ".join(f"<urn:s{n}> <urn:q> {n} ." for n in range(2000))
        first = engine.update([UpdateRequest(f"INSERT DATA {{ {long} <urn:last> <urn:is> {number} }}")])
        second = engine.update([UpdateRequest(f"DELETE DATA {{ <urn:last> <urn:is> {number} }}")])
        first.result(WAIT)
        assert second.result(WAIT)[0].removed == 1


def test_a_long_update_that_is_wrong_is_refused(engine):
    with pytest.raises(EdgeError, match=r"not valid SPARQL 1\.1"):
        engine.update([UpdateRequest("INSERT DATA { " + "<urn:a> <urn:b> 1 . " * 3000 + "oops }")]).result(WAIT)
