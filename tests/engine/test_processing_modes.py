"""Sequential and parallel processing on real threads: the results are equal, whenever the mode changes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyoxigraph as ox
import pytest
from fake_clock import FakeClock
from scheduler_harness import WAIT, Client, evaluated, insert

from edge.engine.engine import Engine
from edge.engine.journal.journal import Journal
from edge.engine.queries.evaluator import SelectEvaluator
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.result_table import ResultTable
from edge.engine.requests import QueryRequest, SubscribeFailed, UpdateOutcome, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings, Processing
from edge.engine.start import make_engine
from tests.support.settings import unchecked

QUERIES = (
    "SELECT ?o { ?s <a:p> ?o }",
    "SELECT ?o { { ?s <a:p> ?o } UNION { ?s <a:q> ?o } }",
    "SELECT (COALESCE(MAX(?x), 0) AS ?o) { ?s <a:p> ?x }",
    "SELECT ?o { ?s <a:p> ?o } ORDER BY DESC(?o) LIMIT 3",
    "SELECT ?o { ?s <a:p> ?o FILTER NOT EXISTS { ?s <a:p> ?more FILTER(?more > ?o) } }",
)


@dataclass
class Gate:
    """An engine that re-evaluates every subscription, and its scheduler."""

    engine: Engine
    scheduler: Scheduler

    def update(self, *texts: str) -> list[UpdateOutcome]:
        return self.scheduler.update([UpdateRequest(text) for text in texts]).result(WAIT)


@contextmanager
def running(processing: Processing = "parallel", **settings: object) -> Iterator[Gate]:
    given = unchecked(EngineSettings, booster="re-evaluate", processing=processing, spu_workers=2, **settings)  # type: ignore[arg-type]
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
    """Change the mode all the time."""
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


@pytest.mark.parametrize("processing", ["sequential", "parallel"])
def test_evaluations_run_concurrently_in_parallel_mode_only(monkeypatch, processing):
    """Each evaluation waits until another one starts, which requires that they run in parallel."""
    with running(processing) as gate:
        clients = [Client(gate, query) for query in QUERIES[:2]]  # type: ignore[arg-type]
        for client in clients:
            client.future.result(WAIT)
        meeting = threading.Barrier(2, timeout=WAIT if processing == "parallel" else 0.1)
        met: list[bool] = []
        read = SelectEvaluator.read

        def read_together(self: SelectEvaluator, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
            try:
                meeting.wait()
            except threading.BrokenBarrierError:
                met.append(False)
            else:
                met.append(True)
            return read(self, store, rules, now)

        monkeypatch.setattr(SelectEvaluator, "read", read_together)
        gate.update(insert(1))
        evaluated(gate.scheduler)
        assert met == [processing == "parallel"] * 2
        assert [client.received() for client in clients] == [[(0, [], []), (1, [1], [])]] * 2


def test_threads_begin_when_they_are_used_and_end_on_close():
    before = pool()
    with running("sequential") as gate:
        assert pool() == before
        clients = [Client(gate, query) for query in QUERIES]  # type: ignore[arg-type]
        gate.update(insert(1))
        evaluated(gate.scheduler)
        assert len(pool() - before) == 1
        gate.scheduler.processing = "parallel"
        for value in range(2, 6):
            gate.update(insert(value))
        evaluated(gate.scheduler)
        assert len(pool() - before) == 2
        assert all(client.future.done() for client in clients)
    assert pool() == before


def test_a_switch_under_load_ends_with_the_right_result_for_all(gate):
    clients = [Client(gate, query) for query in QUERIES]
    many = range(1, 151)
    with toggling(gate.scheduler):
        futures = [gate.scheduler.update([UpdateRequest(insert(value))]) for value in many]
        assert all(future.result(WAIT)[0].changed for future in futures)
    evaluated(gate.scheduler)
    for client, expected in zip(clients, (many, many, [150], [148, 149, 150], [150]), strict=True):
        values: Counter[int] = Counter()
        for number, (sequence, added, removed) in enumerate(client.received()):
            assert sequence == number
            assert Counter(removed) <= values
            assert number == 0 or added or removed
            values = values - Counter(removed) + Counter(added)
        assert values == Counter(expected)


def test_a_query_that_fails_ends_its_subscription_alone(gate):
    """The query fails on a thread of the pool with a partly read answer, which must end there."""
    with running(max_query_memory=512 * 10) as gate:
        good = Client(gate, QUERIES[0])  # type: ignore[arg-type]
        bad = Client(gate, "SELECT ?o { ?s <a:p> ?x . ?t <a:p> ?o }")  # type: ignore[arg-type]
        other = Client(gate, QUERIES[1])  # type: ignore[arg-type]
        evaluated(gate.scheduler)
        for value in range(6):
            assert gate.update(insert(value))[0].added == 1
            evaluated(gate.scheduler)
        assert len(good.received()) == len(other.received()) == 7
        assert len(bad.received()) == 4
        last = bad.items[-1]
        assert isinstance(last, SubscribeFailed)
        assert "max_query_memory" in last.description
        assert gate.scheduler.subscriptions == 2


@pytest.mark.parametrize("processing", ["sequential", "parallel"])
def test_an_internal_error_ends_only_its_subscription(monkeypatch, caplog, processing):
    with running(processing) as gate:
        clients = [Client(gate, query) for query in QUERIES]  # type: ignore[arg-type]
        evaluated(gate.scheduler)
        gate.update(insert(1))
        evaluated(gate.scheduler)
        read = SelectEvaluator.read

        def fail(self: SelectEvaluator, store: ox.Store, rules: QueryRules, now: int) -> ResultTable:
            table = read(self, store, rules, now)
            if b"?o" in table.header and len(table.lines) == 2:
                raise ZeroDivisionError
            return table

        with monkeypatch.context() as patched:
            patched.setattr(SelectEvaluator, "read", fail)
            gate.update(insert(2))
            evaluated(gate.scheduler)
        assert gate.scheduler.quads == 2
        gate.update(insert(3))
        evaluated(gate.scheduler)
        for number in (2, 4):
            assert clients[number].received()[1:] == [
                (1, [1], clients[number].received()[1][2]),
                (2, [2], [1]),
                (3, [3], [2]),
            ]
        for number in (0, 1, 3):
            *received, last = clients[number].items
            assert len(received) == 2
            assert isinstance(last, SubscribeFailed)
            assert "Internal error" in last.description
            assert "ZeroDivisionError" in last.description
        assert gate.scheduler.subscriptions == 2
        assert gate.scheduler.subscription_faults == 3
        assert caplog.text.count("Traceback") == 1, "the same fault is logged once"


def test_spus_that_come_and_go_under_load_while_the_mode_changes_leave_nothing(gate):
    lasting = Client(gate, QUERIES[0])
    with toggling(gate.scheduler):
        for turn in range(30):
            updates = [gate.scheduler.update([UpdateRequest(insert(turn * 3 + number))]) for number in range(3)]
            passing = [Client(gate, query) for query in QUERIES[1:]]
            for client in passing:
                gate.scheduler.unsubscribe(client.future.result(WAIT).spuid).result(WAIT)
            assert all(future.result(WAIT)[0].changed for future in updates)
    evaluated(gate.scheduler)
    assert (gate.scheduler.subscriptions, gate.scheduler.spus) == (1, 1)
    received = lasting.received()
    assert [sequence for sequence, *_ in received] == list(range(len(received)))
    assert sorted(value for _, added, _ in received for value in added) == list(range(90))
    gate.scheduler.unsubscribe(lasting.future.result(WAIT).spuid).result(WAIT)
    gate.update("DROP ALL")
    gate.scheduler.subscribe(QueryRequest("ASK { <a:s> <a:p> 1 }"), lambda _: None).result(WAIT)
    assert len(gate.engine.graph.dictionary) <= 5, "terms of results are kept"
