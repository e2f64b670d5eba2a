"""Sequential and parallel processing: nobody who subscribes can tell which it is, nor when it changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyoxigraph as ox
import pytest
import story
from engine_world import World
from fake_clock import FakeClock
from scheduler_house import WAIT, Client, insert

from edge.engine.engine import Engine
from edge.engine.evaluator import SelectEvaluator
from edge.engine.general import Rules
from edge.engine.journal import Journal
from edge.engine.requests import Notification, QueryRequest, SubscribeFailed, UpdateOutcome, UpdateRequest
from edge.engine.scheduler import Scheduler
from edge.engine.settings import EngineSettings, Processing
from edge.engine.start import make_engine
from edge.engine.tables import Table
from edge.engine.workers import Workers

QUERIES = (
    "SELECT ?o { ?s <a:p> ?o }",
    "SELECT ?o { { ?s <a:p> ?o } UNION { ?s <a:q> ?o } }",
    "SELECT (COALESCE(MAX(?x), 0) AS ?o) { ?s <a:p> ?x }",
    "SELECT ?o { ?s <a:p> ?o } ORDER BY DESC(?o) LIMIT 3",
    "SELECT ?o { ?s <a:p> ?o FILTER NOT EXISTS { ?s <a:p> ?more FILTER(?more > ?o) } }",
)


@dataclass
class Gate:
    """An engine that evaluates every subscription anew, and its scheduler."""

    engine: Engine
    scheduler: Scheduler

    def update(self, *texts: str) -> list[UpdateOutcome]:
        return self.scheduler.update([UpdateRequest(text) for text in texts]).result(WAIT)


@contextmanager
def running(processing: Processing = "parallel", **settings: object) -> Iterator[Gate]:
    given = EngineSettings(booster="re-evaluate", processing=processing, spu_workers=2, **settings)  # type: ignore[arg-type]
    engine = make_engine(given)
    gate = Gate(engine, Scheduler(engine, Journal.open(None), given, FakeClock()))
    try:
        yield gate
    finally:
        assert gate.scheduler.close(WAIT)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with running() as gate:
        yield gate


def pool() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("spu")}


@contextmanager
def toggling(scheduler: Scheduler) -> Iterator[None]:
    """The mode changes all the time."""
    over = threading.Event()

    def toggle() -> None:
        while not over.wait(0.001):
            scheduler.processing = "sequential" if scheduler.processing == "parallel" else "parallel"

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WAIT)


@pytest.mark.parametrize("seed", range(20))
def test_both_modes_are_the_naive_engine(monkeypatch, seed):
    """Every query form and operator, undone updates among them: see `World.update`."""
    told = {}
    for processing in ("sequential", "parallel"):
        workers = Workers(2, processing)

        def world(workers: Workers = workers) -> World:
            made = World(Rules(boost=False))
            made.engine.spus.pool = workers
            return made

        monkeypatch.setattr(story, "World", world)
        try:
            told[processing] = story.tell(story.draw(seed))
        finally:
            workers.close()
    assert told["sequential"] == told["parallel"]


@pytest.mark.parametrize("processing", ["sequential", "parallel"])
def test_evaluations_run_beside_each_other_in_parallel_alone(monkeypatch, processing):
    """Each evaluation waits for another to begin, which only happens when they do not take turns."""
    with running(processing) as gate:
        clients = [Client(gate, query) for query in QUERIES[:2]]  # type: ignore[arg-type]
        for client in clients:
            client.future.result(WAIT)
        meeting = threading.Barrier(2, timeout=WAIT if processing == "parallel" else 0.1)
        met: list[bool] = []
        read = SelectEvaluator.read

        def read_together(self: SelectEvaluator, store: ox.Store, rules: Rules, now: int) -> Table:
            try:
                meeting.wait()
            except threading.BrokenBarrierError:
                met.append(False)
            else:
                met.append(True)
            return read(self, store, rules, now)

        monkeypatch.setattr(SelectEvaluator, "read", read_together)
        gate.update(insert(1))
        gate.scheduler.unsubscribe(clients[0].future.result(WAIT).spuid).result(WAIT)
        assert met == [processing == "parallel"] * 2
        assert [client.told() for client in clients] == [[(0, [], []), (1, [1], [])]] * 2


def test_threads_begin_when_they_are_used_and_end_on_close():
    before = pool()
    with running("sequential") as gate:
        clients = [Client(gate, query) for query in QUERIES]  # type: ignore[arg-type]
        gate.update(insert(1))
        assert pool() == before
        gate.scheduler.processing = "parallel"
        gate.update(insert(2))
        assert pool() > before
        assert all(client.future.done() for client in clients)
    assert pool() == before


def test_with_one_thread_nothing_is_handed_over():
    before = pool()
    given = EngineSettings(booster="re-evaluate", processing="parallel", spu_workers=1)
    engine = make_engine(given)
    gate = Gate(engine, Scheduler(engine, Journal.open(None), given, FakeClock()))
    clients = [Client(gate, query) for query in QUERIES]  # type: ignore[arg-type]
    gate.update(insert(1))
    assert pool() == before
    assert gate.scheduler.close(WAIT)
    assert clients[0].told() == [(0, [], []), (1, [1], [])]


def test_a_switch_under_load_loses_and_repeats_nothing(gate):
    clients = [Client(gate, query) for query in QUERIES]
    many = range(1, 151)
    with toggling(gate.scheduler):
        futures = [gate.scheduler.update([UpdateRequest(insert(value))]) for value in many]
        assert all(future.result(WAIT)[0].changed for future in futures)
    gate.scheduler.unsubscribe(clients[0].future.result(WAIT).spuid).result(WAIT)
    grows = [(0, [], []), *((value, [value], []) for value in many)]
    assert clients[0].told() == clients[1].told() == grows
    assert clients[2].told()[2:] == clients[4].told()[2:] == [(value, [value], [value - 1]) for value in many[1:]]
    assert clients[3].told()[4:] == [(value, [value], [value - 3]) for value in many[3:]]


def test_a_query_that_fails_ends_its_subscription_alone(gate):
    """It fails on a thread of the pool, with an answer half read, which must end there."""
    with running(max_solutions=10) as gate:
        good = Client(gate, QUERIES[0])  # type: ignore[arg-type]
        bad = Client(gate, "SELECT ?o { ?s <a:p> ?x . ?t <a:p> ?o }")  # type: ignore[arg-type]
        other = Client(gate, QUERIES[1])  # type: ignore[arg-type]
        for value in range(6):
            assert gate.update(insert(value))[0].added == 1
        gate.scheduler.unsubscribe(good.future.result(WAIT).spuid).result(WAIT)
        assert len(good.told()) == len(other.told()) == 7
        assert len(bad.told()) == 4
        last = bad.items[-1]
        assert isinstance(last, SubscribeFailed)
        assert "max_solutions" in last.description
        assert gate.scheduler.subscriptions == 1


@pytest.mark.parametrize("processing", ["sequential", "parallel"])
def test_a_fault_of_ours_undoes_the_update_and_the_next_one_goes_on(monkeypatch, caplog, processing):
    with running(processing) as gate:
        clients = [Client(gate, query) for query in QUERIES]  # type: ignore[arg-type]
        gate.update(insert(1))
        read = SelectEvaluator.read

        def fail(self: SelectEvaluator, store: ox.Store, rules: Rules, now: int) -> Table:
            table = read(self, store, rules, now)
            if b"?o" in table.header and len(table.lines) == 2:
                raise ZeroDivisionError
            return table

        with monkeypatch.context() as patched:
            patched.setattr(SelectEvaluator, "read", fail)
            with pytest.raises(ZeroDivisionError):
                gate.update(insert(2))
        assert gate.scheduler.quads == 1
        gate.update(insert(3))
        gate.scheduler.unsubscribe(clients[0].future.result(WAIT).spuid).result(WAIT)
        assert clients[0].told() == clients[1].told() == [(0, [], []), (1, [1], []), (2, [3], [])]
        assert "ZeroDivisionError" in caplog.text


def test_spus_that_come_and_go_under_load_while_the_mode_changes_leave_nothing(gate):
    lasting = Client(gate, QUERIES[0])
    with toggling(gate.scheduler):
        for turn in range(30):
            updates = [gate.scheduler.update([UpdateRequest(insert(turn * 3 + number))]) for number in range(3)]
            passing = [Client(gate, query) for query in QUERIES[1:]]
            for client in passing:
                gate.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
            assert all(future.result(WAIT)[0].changed for future in updates)
    assert (gate.scheduler.subscriptions, gate.scheduler.spus) == (1, 1)
    assert [n.sequence for n in lasting.items if isinstance(n, Notification)] == list(range(91))
    gate.scheduler.unsubscribe(lasting.future.result(WAIT).spuid).result(WAIT)
    gate.update("DROP ALL")
    gate.scheduler.subscribe(QueryRequest("ASK { <a:s> <a:p> 1 }"), lambda _: None).result(WAIT)
    assert len(gate.engine.graph.dictionary) <= 5, "terms of results are kept"
