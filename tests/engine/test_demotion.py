"""Demotion: a subscription that becomes too expensive is re-evaluated, and its notifications stay exact."""

from __future__ import annotations

import random

import pytest
from follower import Follower, result_of
from test_first_results import QUERIES, change
from test_first_results import Simulation as Base

from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import QueryRequest, SubscribeFailed
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.engine.subscriptions.reevaluation import MAX_UNDELIVERED
from tests.support.settings import query_rules


class Simulation(Base):
    """An engine whose evaluation threads are controlled by the test. A re-evaluated subscription may skip states."""

    def __init__(self, rules: QueryRules | None = None) -> None:
        super().__init__(rules)
        self.engine.spus.reevaluation.threaded = True

    def check(self) -> None:
        now = {follower.query: result_of(self.store, follower.query) for follower in self.followers}
        for follower in self.followers:
            if follower.gone:
                assert not follower.items, "notified after the end"
                continue
            for _ in follower.follow():
                pass
            if follower.items and self.engine.spus.registry.is_current(self.spuid(follower)):
                assert follower.bag == now[follower.query], follower.query

    def spuid(self, follower: Follower) -> str:
        return follower.items[0].spuid

    def spu(self, follower: Follower) -> IncrementalSpu | ReevaluatedSpu:
        return self.engine.spus.registry.by_spuid[self.spuid(follower)]  # type: ignore[return-value]

    def fetched(self) -> None:
        """Wait until the results before an update are available."""
        if self.first._pool is not None:
            self.first._pool.submit(lambda: None).result()

    def evaluate(self) -> bool:
        """Run one evaluation of a re-evaluated query."""
        reevaluation = self.engine.spus.reevaluation
        job = reevaluation.next()
        if job is not None:
            reevaluation.finish(reevaluation.run(job))
        return job is not None

    def settle(self) -> None:
        while True:
            self.fetched()
            while self.fork() or self.tasks:
                while self.tasks:
                    self.take()
            while self.evaluate():
                pass
            self.engine.deliver(MAX_UNDELIVERED)
            if not (self.engine.spus.replacement.processes or self.tasks or self.engine.spus.reevaluation.pending):
                break
        self.check()
        for follower in self.followers:
            assert follower.gone or self.engine.spus.registry.is_current(self.spuid(follower))


@pytest.fixture
def too_expensive(monkeypatch):
    """Every lookup for an update exceeds the limit."""
    monkeypatch.setattr("edge.engine.subscriptions.demotion.STEPS", -1)
    monkeypatch.setattr("edge.engine.subscriptions.demotion.STEPS_PER_QUAD", 0)


JOINED = "SELECT ?s ?t { ?s <urn:p> ?o . ?o <urn:p> ?t }"


def test_an_expensive_incremental_query_is_reevaluated(too_expensive):
    simulation = Simulation()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> <urn:b> . <urn:b> <urn:p> <urn:c> }")
    follower = simulation.subscribe(JOINED)
    assert isinstance(simulation.spu(follower), IncrementalSpu)
    simulation.commit("INSERT DATA { <urn:c> <urn:p> <urn:d> }", "INSERT DATA { <urn:d> <urn:p> <urn:a> }")
    assert isinstance(simulation.spu(follower), ReevaluatedSpu)
    assert follower.read == 1
    simulation.settle()
    assert follower.read == 2
    explanation = simulation.engine.explain(QueryRequest(JOINED))
    assert explanation.kept == "re-evaluated"
    assert "more steps" in explanation.reason
    assert explanation.evaluations is not None
    late = simulation.subscribe(JOINED)
    simulation.settle()
    assert simulation.spu(late) is simulation.spu(follower)
    for each in (follower, late):
        simulation.unsubscribe(each)
    assert simulation.engine.spus.spus == 0
    assert simulation.engine.explain(QueryRequest(JOINED)).kept == "incremental"


def test_an_update_that_is_undone_demotes_nothing(too_expensive):
    simulation = Simulation()
    simulation.commit("INSERT DATA { <urn:a> <urn:p> <urn:b> . <urn:b> <urn:p> <urn:c> }")
    follower = simulation.subscribe(JOINED)
    simulation.fail("INSERT DATA { <urn:c> <urn:p> <urn:d> }")
    assert isinstance(simulation.spu(follower), IncrementalSpu)
    assert simulation.engine.spus.replacement.processes == 0


def test_a_demoted_subscription_ends_with_the_reason_beyond_a_limit(too_expensive):
    simulation = Simulation(query_rules(max_query_memory=512 * 4))
    follower = simulation.subscribe(JOINED)
    simulation.commit("INSERT DATA { <urn:a> <urn:p> <urn:a> }")
    simulation.settle()
    simulation.followers.clear()
    simulation.commit(
        "INSERT DATA { <urn:a> <urn:p> <urn:b>, <urn:c> . <urn:b> <urn:p> <urn:a> . <urn:c> <urn:p> <urn:a> }"
    )
    while simulation.evaluate():
        simulation.engine.deliver(MAX_UNDELIVERED)
    last = follower.items[-1]
    assert isinstance(last, SubscribeFailed)
    assert "max_query_memory" in last.description
    assert simulation.engine.spus.spus == 0


@pytest.mark.parametrize("seed", range(24))
def test_any_order_of_commits_and_evaluations_is_exact(seed, too_expensive):
    author = random.Random(seed)
    simulation = Simulation()
    simulation.commit(*(change(author) for _ in range(8)))
    demoted = 0
    for _ in range(120):
        match author.randrange(9):
            case 0 | 1 | 2:
                simulation.commit(*(change(author) for _ in range(author.choice((1, 1, 3)))))
            case 3:
                simulation.fail(change(author))
            case 4 if len(simulation.followers) < 10:
                simulation.subscribe(author.choice(QUERIES), author.choice(("one", "other")))
            case 5:
                begun = [each for each in simulation.followers if each.items and not each.gone]
                if begun and not author.randrange(4):
                    simulation.unsubscribe(author.choice(begun))
            case 6 if simulation.tasks:
                simulation.take()
            case 7:
                simulation.evaluate()
            case 8:
                simulation.engine.deliver(author.choice((1, MAX_UNDELIVERED)))
                simulation.check()
        demoted = max(demoted, len(simulation.engine.spus.registry._demoted))
    simulation.settle()
    for follower in simulation.followers:
        if not follower.gone:
            simulation.unsubscribe(follower)
    assert (simulation.engine.spus.subscriptions, simulation.engine.spus.spus) == (0, 0)
    assert demoted, "a story without demotions proves nothing"
