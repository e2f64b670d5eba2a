"""Re-evaluation outside the writer: notifications lead from one committed state to a later one, and the last is right.

The test plays the threads: it decides when a job starts, when it evaluates, and when the writer delivers.
"""

from __future__ import annotations

import random
from collections import Counter

import pyoxigraph as ox
import pytest
from engine_world import NOW, new_engine
from follower import Follower, result_of

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import ActiveSubscription, QueryRequest, UpdateRequest
from edge.engine.subscriptions.reevaluation import MAX_UNDELIVERED, Evaluated, Job

QUERIES = (
    "SELECT ?s ?o { ?s <urn:p> ?o } ORDER BY ?o ?s LIMIT 3",
    "SELECT ?o { <urn:a> <urn:p>+ ?o }",
    "SELECT (COUNT(*) AS ?n) { ?s <urn:p>+ ?o }",
    "ASK { ?s <urn:p>+ <urn:c> }",
    "CONSTRUCT { ?o <urn:of> ?s } WHERE { ?s <urn:p>+ ?o }",
    "DESCRIBE ?s { ?s <urn:p> <urn:b> }",
)
NODES = ("urn:a", "urn:b", "urn:c", "urn:d")


class Simulation:
    """An engine whose evaluation threads are controlled by the test."""

    def __init__(self) -> None:
        self.engine = new_engine(QueryRules())
        self.reevaluation = self.engine.spus.reevaluation
        self.reevaluation.threaded = True
        self.store = ox.Store()
        self.states: list[dict[str, Counter]] = [self._results()]
        """The result of each query in each committed state."""
        self.followers: list[Follower] = []
        self.jobs: list[Job] = []
        self.outcomes: list[Evaluated] = []

    def commit(self, *texts: str) -> None:
        """Commit several updates at once; the mirror of committed states shows them at the same time."""
        executed = []
        for text in texts:
            executed += self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
            self.store.update(text)
        self.engine.show(executed)
        self.states.append(self._results())
        self.engine.publish(executed)

    def fail(self, text: str) -> None:
        """Run an update that the disk refuses."""
        self.engine.undo(self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW))

    def subscribe(self, query: str, client: str = "client") -> Follower:
        follower = Follower(query, state=len(self.states) - 1)
        prepared = self.engine.prepare_query(QueryRequest(query))
        self.engine.begin(prepared, follower.items.append, None, client, NOW, follower.outcomes.append)
        self.followers.append(follower)
        return follower

    def unsubscribe(self, follower: Follower) -> None:
        (subscription,) = follower.outcomes
        assert isinstance(subscription, ActiveSubscription)
        self.engine.unsubscribe(subscription.spuid)
        self.check()
        follower.gone = True
        follower.items.clear()

    def begin(self) -> bool:
        job = self.reevaluation.next(3)
        if job is not None:
            self.jobs.append(job)
        return job is not None

    def evaluate(self, number: int = 0) -> None:
        self.outcomes.append(self.reevaluation.run(self.jobs.pop(number)))

    def finish(self, number: int = 0) -> None:
        self.reevaluation.finish(self.outcomes.pop(number))

    def deliver(self, most: int = MAX_UNDELIVERED) -> None:
        self.engine.deliver(most)
        self.check()

    def settle(self) -> None:
        """Continue until no work is left."""
        while self.jobs or self.outcomes or self.reevaluation.pending:
            while self.begin():
                pass
            while self.jobs:
                self.evaluate()
            while self.outcomes:
                self.finish()
            self.deliver()
        for follower in self.followers:
            if not follower.gone:
                assert follower.bag == self.states[-1][follower.query], follower.query

    def check(self) -> None:
        """Check each new notification: its number, and that it leads to the result of a later state."""
        for follower in self.followers:
            if follower.gone:
                assert not follower.items, "notified after the end"
                continue
            for _ in follower.follow():
                later = range(follower.state, len(self.states))
                follower.state = next(n for n in later if self.states[n][follower.query] == follower.bag)

    def _results(self) -> dict[str, Counter]:
        return {query: result_of(self.store, query) for query in QUERIES}


def link(author: random.Random) -> str:
    verb = author.choice(("INSERT", "INSERT", "DELETE"))
    return f"{verb} DATA {{ <{author.choice(NODES)}> <urn:p> <{author.choice(NODES)}> }}"


@pytest.mark.parametrize("seed", range(60))
def test_any_order_of_commits_and_evaluations_is_exact(seed):
    author = random.Random(seed)
    simulation = Simulation()
    for _ in range(400):
        match author.randrange(10):
            case 0 | 1:
                simulation.commit(*(link(author) for _ in range(author.choice((1, 1, 3)))))
            case 2:
                simulation.fail(link(author))
            case 3 if len(simulation.followers) < 12:
                simulation.subscribe(author.choice(QUERIES))
            case 4:
                begun = [each for each in simulation.followers if each.outcomes and not each.gone]
                if begun and not author.randrange(3):
                    simulation.unsubscribe(author.choice(begun))
            case 5 | 6:
                simulation.begin()
            case 7 if simulation.jobs:
                simulation.evaluate(author.randrange(len(simulation.jobs)))
            case 8 if simulation.outcomes:
                simulation.finish(author.randrange(len(simulation.outcomes)))
            case 9:
                simulation.deliver(author.choice((1, MAX_UNDELIVERED)))
    simulation.settle()
    assert sum(each.read for each in simulation.followers) > 6, "a story without notifications proves nothing"
    for follower in simulation.followers:
        if not follower.gone:
            simulation.unsubscribe(follower)
    assert (simulation.engine.spus.subscriptions, simulation.engine.spus.spus) == (0, 0)


def test_the_writer_evaluates_nothing_and_states_are_skipped():
    simulation = Simulation()
    follower = simulation.subscribe(QUERIES[0])
    simulation.settle()
    for number in range(5):
        simulation.commit(f"INSERT DATA {{ <urn:a> <urn:p> {number} }}")
    assert follower.read == 1
    assert simulation.reevaluation.pending == 1
    simulation.settle()
    assert follower.read == 2
    spu = next(iter(simulation.engine.spus.registry.by_spuid.values()))
    assert (spu.usage.evaluations, spu.usage.merged) == (2, 4)


def test_a_commit_during_an_evaluation_leaves_a_mark_behind():
    simulation = Simulation()
    follower = simulation.subscribe(QUERIES[0])
    simulation.settle()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 1 }")
    assert simulation.begin()
    simulation.evaluate()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 2 }")
    assert not simulation.begin(), "one evaluation at a time"
    simulation.finish()
    simulation.deliver()
    assert follower.read == 2
    simulation.settle()
    assert follower.read == 3


def test_nothing_is_delivered_after_an_unsubscribe():
    simulation = Simulation()
    follower = simulation.subscribe(QUERIES[0])
    simulation.settle()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 1 }")
    simulation.begin()
    simulation.evaluate()
    simulation.finish()
    simulation.unsubscribe(follower)
    simulation.deliver()
    assert simulation.engine.spus.spus == 0
    assert simulation.reevaluation.pending == 0


def test_a_subscriber_that_joins_during_the_first_evaluation_gets_the_result_once():
    simulation = Simulation()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 1 }")
    first = simulation.subscribe(QUERIES[0])
    simulation.begin()
    simulation.evaluate()
    second = simulation.subscribe(QUERIES[0])
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 2 }")
    simulation.settle()
    assert first.bag == second.bag
    assert simulation.engine.spus.spus == 1


def test_clients_take_turns():
    simulation = Simulation()
    for number in range(3):
        simulation.subscribe(f"SELECT ?o {{ <urn:a> <urn:p> ?o }} LIMIT {number + 1}", "many")
    simulation.subscribe("SELECT ?o { <urn:a> <urn:p> ?o } LIMIT 9", "one")
    order = []
    while (job := simulation.reevaluation.next(9)) is not None:
        order.append(job.client)
    assert order == ["many", "one", "many", "many"]


def test_explain_shows_the_fraction_of_the_evaluation_cost():
    simulation = Simulation()
    query = QueryRequest(QUERIES[0])
    assert simulation.engine.explain(query).evaluations is None
    simulation.subscribe(QUERIES[0])
    simulation.subscribe(QUERIES[1])
    simulation.settle()
    for number in range(3):
        simulation.commit(f"INSERT DATA {{ <urn:a> <urn:p> {number} }}")
    simulation.settle()
    costs = [simulation.engine.explain(QueryRequest(text)).evaluations for text in QUERIES[:2]]
    assert all(cost is not None and (cost.count, cost.merged) == (2, 2) for cost in costs)
    assert sum(cost.share for cost in costs if cost is not None) == pytest.approx(1.0)
    assert simulation.reevaluation.total.merged == 4
