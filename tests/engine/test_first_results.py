"""First results of incremental subscriptions outside the writer: exact, whatever is committed or rolled back meanwhile.

The test plays the writer's queue: it decides when a process forks and when a piece of its result is applied.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pyoxigraph as ox
import pytest
from engine_world import NOW, new_engine
from follower import Follower, result_of
from scheduler_harness import WAIT, Harness

from edge.engine.queries.oxigraph_queries import QueryRules, parse
from edge.engine.requests import (
    ActiveSubscription,
    QueryRequest,
    SubscribeFailed,
    SubscriberNotification,
    UpdateRequest,
)
from edge.engine.scheduling.compile_queue import LONG_TEXT
from edge.engine.subscriptions.deferred_first_result import DeferredFirstResult
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.protocol.errors import EdgeError, NotReady, ParsingFailed, ResultTooLarge
from tests.support.settings import query_rules
from tests.support.waiting import wait_for

QUERIES = (
    "SELECT ?s ?o { ?s <urn:p> ?o }",
    "SELECT ?o { <urn:a> <urn:p> ?o }",
    "SELECT ?s ?t { ?s <urn:p> ?o . ?o <urn:p> ?t }",
    "SELECT DISTINCT ?o { ?s <urn:p> ?o }",
    "SELECT ?s ?o ?t { ?s <urn:p> ?o OPTIONAL { ?o <urn:q> ?t } }",
    "SELECT ?s { ?s <urn:p> ?o MINUS { ?s <urn:q> ?o } }",
    "SELECT ?s ?o { { ?s <urn:p> ?o } UNION { ?s <urn:q> ?o FILTER(?o = <urn:b>) } }",
    "SELECT ?s (COUNT(?o) AS ?n) { ?s <urn:p> ?o } GROUP BY ?s",
    "SELECT (COUNT(*) AS ?n) (MIN(?o) AS ?least) { ?s <urn:p> ?o }",
    'SELECT ?o (CONCAT(STR(?s), "\\t\\"x\\n") AS ?text) { ?s <urn:p> ?o }',
    "SELECT ?x ?o { ?s <urn:p> ?o VALUES ?x { 1 <urn:a> UNDEF } }",
    "ASK { ?s <urn:p> <urn:c> . ?s <urn:q> ?o }",
    "CONSTRUCT { ?o <urn:of> ?s } WHERE { ?s <urn:p> ?o }",
    "SELECT ?g ?s { GRAPH ?g { ?s <urn:p> <urn:a> } }",
)
NODES = ("urn:a", "urn:b", "urn:c", "urn:d")


class Simulation:
    """An engine whose writer's queue is controlled by the test."""

    def __init__(self, rules: QueryRules | None = None) -> None:
        self.engine = new_engine(rules or QueryRules())
        self.first = self.engine.spus.incremental.first_results
        self.tasks: list[Callable[[], None]] = []
        self.first.open(2, 0.0, self._submit)
        self.store = ox.Store()
        self.followers: list[Follower] = []
        self.outside = 0

    def _submit(self, client: str, action: Callable[[], None]) -> None:
        self.tasks.append(action)

    def commit(self, *texts: str) -> None:
        """Commit several updates at once."""
        executed = []
        for text in texts:
            executed += self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
            self.store.update(text)
        self.engine.show(executed)
        self.engine.publish(executed)
        self.check()

    def fail(self, text: str) -> None:
        """Run an update that the disk refuses."""
        self.engine.undo(self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW))

    def subscribe(self, query: str, client: str = "client") -> Follower:
        follower = Follower(query)
        self.followers.append(follower)
        prepared = self.engine.prepare_query(QueryRequest(query))
        self.engine.begin(prepared, follower.items.append, None, client, NOW, follower.outcomes.append)
        self.outside += not follower.outcomes
        self.check()
        return follower

    def unsubscribe(self, follower: Follower) -> None:
        (subscription,) = follower.outcomes
        assert isinstance(subscription, ActiveSubscription)
        self.engine.unsubscribe(subscription.spuid)
        follower.gone = True
        follower.items.clear()

    def fork(self) -> bool:
        """Fork a process for a first result, and wait for the result."""
        before = len(self.tasks)
        self.first.begin()
        forks = self.tasks[before:]
        del self.tasks[before:]
        for task in forks:
            task()
        wait_for(lambda: not self.first._busy)  # the results are available
        return bool(forks)

    def take(self, number: int = 0) -> None:
        """Apply a piece of a first result."""
        self.tasks.pop(number)()
        self.check()

    def settle(self) -> None:
        """Continue until no work is left."""
        while self.fork() or self.tasks:
            while self.tasks:
                self.take()
        self.check()
        for follower in self.followers:
            assert follower.outcomes, follower.query

    def check(self) -> None:
        """Check that each started subscription has the current result."""
        for follower in self.followers:
            if follower.gone:
                assert not follower.items, "notified after the end"
                continue
            for _ in follower.follow():
                pass
            assert bool(follower.items) == any(isinstance(each, ActiveSubscription) for each in follower.outcomes)
            if follower.items:
                assert follower.bag == result_of(self.store, follower.query), follower.query


def change(author: random.Random) -> str:
    verb = author.choice(("INSERT", "INSERT", "DELETE"))
    triple = f"<{author.choice(NODES)}> <urn:{author.choice('ppq')}> <{author.choice(NODES)}>"
    return f"{verb} DATA {{ {author.choice((triple, triple, f'GRAPH <urn:g> {{ {triple} }}'))} }}"


@pytest.fixture
def everything_outside(monkeypatch):
    """Let each first result exceed the writer's limit, and apply it in pieces of two solutions."""
    monkeypatch.setattr("edge.engine.subscriptions.first_results.FIRST_STEPS", -1)
    monkeypatch.setattr("edge.engine.subscriptions.deferred_first_result.PIECE", 2)


@pytest.mark.parametrize("seed", range(24))
def test_any_order_of_commits_and_pieces_is_exact(seed, everything_outside):
    author = random.Random(seed)
    simulation = Simulation()
    simulation.commit(*(change(author) for _ in range(12)))
    for _ in range(150):
        match author.randrange(12):
            case 0 | 1 | 2:
                simulation.commit(*(change(author) for _ in range(author.choice((1, 1, 3)))))
            case 3:
                simulation.fail(change(author))
            case 4 if len(simulation.followers) < 14:
                simulation.subscribe(author.choice(QUERIES), author.choice(("one", "other")))
            case 5:
                begun = [each for each in simulation.followers if each.outcomes and not each.gone]
                if begun and not author.randrange(3):
                    simulation.unsubscribe(author.choice(begun))
            case 6:
                simulation.fork()
            case _ if simulation.tasks:
                simulation.take(author.randrange(len(simulation.tasks)))
    simulation.settle()
    assert simulation.outside > 3, "a story without first results outside proves nothing"
    for follower in simulation.followers:
        if not follower.gone:
            simulation.unsubscribe(follower)
    assert (simulation.engine.spus.subscriptions, simulation.engine.spus.spus) == (0, 0)
    simulation.commit("DROP ALL")
    simulation.engine.graph.dictionary.sweep()
    fresh = new_engine()
    fresh.graph.dictionary.sweep()
    assert len(simulation.engine.graph.dictionary) == len(fresh.graph.dictionary), "terms are held for nobody"


@pytest.mark.parametrize("query", QUERIES)
def test_each_kind_of_query_catches_up(query, everything_outside):
    author = random.Random(query)
    simulation = Simulation()
    simulation.commit(*(change(author) for _ in range(30)))
    first = simulation.subscribe(query)
    assert not first.outcomes
    simulation.fork()
    simulation.commit(*(change(author) for _ in range(9)))
    simulation.take()
    simulation.commit(*(change(author) for _ in range(3)))
    late = simulation.subscribe(query, "another")
    simulation.settle()
    again = simulation.subscribe(query, "again")
    simulation.fork()
    simulation.commit(*(change(author) for _ in range(9)))
    simulation.settle()
    assert first.bag == late.bag == again.bag


def test_a_small_first_result_is_sent_at_once():
    simulation = Simulation()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 1 }")
    follower = simulation.subscribe(QUERIES[0])
    assert follower.outcomes
    assert not simulation.tasks


def test_a_result_beyond_a_limit_is_refused_and_leaves_nothing_behind():
    simulation = Simulation(query_rules(max_query_memory=512 * 5))
    simulation.commit("INSERT DATA { " + " . ".join(f"<urn:a> <urn:p> {number}" for number in range(9)) + " }")
    follower = simulation.subscribe(QUERIES[0])
    simulation.settle()
    (outcome,) = follower.outcomes
    assert isinstance(outcome, ResultTooLarge)
    assert simulation.engine.spus.spus == 0


def test_a_first_result_that_grows_too_large_is_refused(everything_outside):
    simulation = Simulation(query_rules(max_query_memory=512 * 5))
    simulation.commit("INSERT DATA { " + " . ".join(f"<urn:a> <urn:p> {number}" for number in range(4)) + " }")
    follower = simulation.subscribe("SELECT DISTINCT ?s ?o { ?s <urn:p> ?o }")
    simulation.fork()
    simulation.commit("INSERT DATA { " + " . ".join(f"<urn:b> <urn:p> {number}" for number in range(4)) + " }")
    simulation.settle()
    (outcome,) = follower.outcomes
    assert isinstance(outcome, ResultTooLarge)
    assert simulation.engine.spus.spus == 0


def test_a_fault_while_a_piece_is_taken_in_ends_that_subscription_only(everything_outside, monkeypatch):
    simulation = Simulation()
    simulation.commit(*(f"INSERT DATA {{ <urn:a> <urn:p> <urn:{letter}> }}" for letter in "abcdef"))
    live = simulation.subscribe(QUERIES[0])
    simulation.settle()
    broken = simulation.subscribe(QUERIES[0])
    simulation.fork()
    with monkeypatch.context() as patch:
        patch.setattr(DeferredFirstResult, "take", _raise)
        simulation.take()
    (outcome,) = broken.outcomes
    assert isinstance(outcome, ZeroDivisionError)
    simulation.commit("INSERT DATA { <urn:b> <urn:p> <urn:a> }")
    assert live.read == 2
    simulation.settle()


def test_a_fault_while_changes_are_collected_costs_no_update(everything_outside, monkeypatch):
    simulation = Simulation()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> <urn:b> }")
    broken, other = simulation.subscribe(QUERIES[0]), simulation.subscribe(QUERIES[1])
    simulation.settle()
    again = simulation.subscribe(QUERIES[0], "again")
    simulation.fork()
    with monkeypatch.context() as patch:
        patch.setattr(DeferredFirstResult, "change", _raise)
        executed = simulation.engine.execute(
            [simulation.engine.prepare(UpdateRequest("INSERT DATA { <urn:a> <urn:p> <urn:c> }"))], NOW
        )
        simulation.engine.show(executed)
        simulation.engine.publish(executed)
    assert isinstance(broken.items[-1], SubscribeFailed)
    assert isinstance(again.outcomes[0], EdgeError)
    assert other.items[-1].sequence == 1  # type: ignore[union-attr]
    assert simulation.engine.spus.spus == 1


def _raise(*_: object) -> None:
    raise ZeroDivisionError


def test_clients_take_turns_and_have_one_process_each(everything_outside):
    simulation = Simulation()
    for number in range(3):
        simulation.subscribe(f"SELECT ?s {{ ?s <urn:p{number}> ?o }}", "many")
    simulation.subscribe("SELECT ?s { ?s <urn:p9> ?o }", "one")
    simulation.first.begin()
    assert [*simulation.first._busy] == ["many", "one"]
    assert len(simulation.tasks) == 2


def test_a_client_over_its_budget_waits(everything_outside):
    now = 0.0
    simulation = Simulation()
    simulation.first._clock = lambda: now
    simulation.first._queue.limit(0.5)
    simulation.first._queue.charge("many", 3.0, now)
    simulation.subscribe(QUERIES[0], "many")
    simulation.first.begin()
    assert not simulation.tasks
    assert simulation.first.wait == 4.0
    now = 4.0
    simulation.first.begin()
    assert len(simulation.tasks) == 1


def expensive(number: int) -> QueryRequest:
    """Return a query of nine million steps."""
    return QueryRequest(f"SELECT ?a {{ ?a <urn:n> ?x . ?b <urn:n> ?y FILTER(?x + ?y < -{number}) }}", source="one")


@pytest.fixture
def harness(open_harness):
    def furnished(**settings: object) -> Harness:
        harness = open_harness(**settings)
        harness.update(
            "INSERT DATA { " + " . ".join(f"<urn:{number}> <urn:n> {number}" for number in range(3_000)) + " }"
        )
        return harness

    return furnished


def test_an_update_waits_for_no_first_result_and_a_stop_ends_it(harness):
    harness = harness()
    waiting = [harness.scheduler.subscribe(expensive(number), lambda _: None) for number in range(3)]
    harness.update("INSERT DATA { <urn:x> <urn:y> 1 }")
    assert not any(future.done() for future in waiting)
    harness.scheduler.close()
    for future in waiting:
        assert isinstance(future.exception(WAIT), NotReady)


def test_a_first_result_that_takes_too_many_steps_is_refused(harness):
    harness = harness(max_steps=100_000)
    with pytest.raises(ResultTooLarge, match="100000 steps"):
        harness.scheduler.subscribe(expensive(1), lambda _: None).result(WAIT)


@pytest.mark.parametrize("request_", ["subscribe", "explain"])
def test_compiling_a_long_text_delays_no_other_client(open_harness, monkeypatch, request_):
    harness = open_harness()
    engine = harness.scheduler._engine
    compiling, go_on = threading.Event(), threading.Event()

    def prepare(request: QueryRequest, prepare=engine.prepare_query) -> object:
        if len(request.sparql) > LONG_TEXT:
            compiling.set()
            assert go_on.wait(WAIT)
        return prepare(request)

    monkeypatch.setattr(engine, "prepare_query", prepare)
    padding = " " * LONG_TEXT
    received: list[SubscriberNotification | SubscribeFailed] = []
    texts = (f"SELECT ?o {{ ?s <a:p> ?o {padding} }}", f"SELECT nonsense {padding}")

    def begin(text: str) -> Future[ActiveSubscription] | Future[Explanation]:
        query = QueryRequest(text, source="one")
        return (
            harness.scheduler.subscribe(query, received.append)
            if request_ == "subscribe"
            else harness.scheduler.explain(query)
        )

    long, wrong = map(begin, texts)
    assert compiling.wait(WAIT)
    harness.update("INSERT DATA { <a:s> <a:p> 1 }")
    assert not long.done()
    go_on.set()
    outcome = long.result(WAIT)
    with pytest.raises(ParsingFailed):
        wrong.result(WAIT)
    if request_ == "explain":
        assert isinstance(outcome, Explanation)
        assert not received
        return
    assert isinstance(outcome, ActiveSubscription)
    (first,) = received
    assert isinstance(first, SubscriberNotification)
    assert len(first.delta.added) == 1


@pytest.mark.parametrize("fault", ["", "oops"])
def test_a_text_that_takes_the_parser_long_is_parsed_in_another_process(open_harness, monkeypatch, fault):
    """The parser holds the GIL: meanwhile no thread of the gateway runs."""
    parsed: list[int] = []
    monkeypatch.setattr("edge.engine.engine.parse", lambda text, base: parsed.append(len(text)) or parse(text, base))
    harness = open_harness()
    values = " ".join(map(str, range(20_000)))
    query = QueryRequest(f"SELECT ?o {{ VALUES ?o {{ {values} }} ?s <a:p> ?o {fault} }}")
    begun = harness.scheduler.subscribe(query, lambda _: None)
    if fault:
        with pytest.raises(ParsingFailed, match="line 1, column 1089"):
            begun.result(WAIT)
    else:
        begun.result(WAIT)
    assert not parsed
    harness.scheduler.subscribe(QueryRequest("SELECT ?o { ?s <a:p> ?o }"), lambda _: None).result(WAIT)
    assert len(parsed) == 1


def test_a_subscription_that_begins_late_is_incremental(everything_outside):
    simulation = Simulation()
    simulation.subscribe(QUERIES[0])
    simulation.settle()
    (spu,) = set(simulation.engine.spus.registry.by_spuid.values())
    assert isinstance(spu, IncrementalSpu)
    assert spu.begun
    assert not spu.deferred_results
