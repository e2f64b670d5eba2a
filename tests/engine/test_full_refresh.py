"""Full refresh: subscriptions with many changes restart their evaluation, and their notifications stay exact."""

from __future__ import annotations

import random

import pytest
from engine_world import NOW
from scheduler_harness import WAIT, Client, evaluated
from test_demotion import Simulation as Base
from test_first_results import QUERIES, change
from test_staged_changes import COUNT, LARGE, data

from edge.engine.requests import SubscribeFailed, UpdateRequest
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.updates.update_attempt import Unfinished, UpdateAttempt
from tests.support.settings import query_rules


class Simulation(Base):
    """An engine that prepares updates in pieces and applies them at once."""

    def large(self, text: str, *, fails: bool = False) -> None:
        """Commit a large change, which the disk accepts or refuses."""
        engine, attempt = self.engine, UpdateAttempt()
        prepared = [engine.prepare(UpdateRequest(text))]
        while True:
            try:
                executed = engine.execute(prepared, NOW, attempt)
                break
            except Unfinished:
                assert attempt.staged is not None
        if fails:
            engine.undo(executed)
        else:
            self.store.update(text)
            engine.show(executed)
            engine.publish(executed)
        while engine.untidy:
            engine.tidy()
        self.check()

    @property
    def refreshing(self) -> int:
        return len(self.engine.spus.registry.refreshes)


@pytest.fixture
def large_ones(monkeypatch):
    """Treat each change that clears a graph as large, and each affected subscription as too expensive."""
    monkeypatch.setattr("edge.engine.updates.attempts.STAGED_FROM", 0)
    monkeypatch.setattr("edge.engine.subscriptions.replacement._MOST_HITS", -1)
    monkeypatch.setattr("edge.engine.subscriptions.replacement._FEW_HITS", 0)


def _large(author: random.Random) -> str:
    whole = ("CLEAR GRAPH <urn:g>", "COPY DEFAULT TO <urn:g>", "MOVE <urn:g> TO DEFAULT", "CLEAR DEFAULT")
    operations = [change(author) for _ in range(author.choice((1, 5, 20)))]
    operations.insert(author.randrange(len(operations) + 1), "CLEAR SILENT GRAPH <urn:none>")
    if not author.randrange(3):
        operations.append(author.choice(whole).replace(" ", " SILENT ", 1))
    return " ; ".join(operations)


@pytest.mark.parametrize("first_steps", [-1, 5_000])
@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_commits_and_pieces_is_exact(seed, first_steps, large_ones, monkeypatch):
    monkeypatch.setattr("edge.engine.subscriptions.first_results.FIRST_STEPS", first_steps)
    monkeypatch.setattr("edge.engine.subscriptions.deferred_first_result.PIECE", 2)
    author = random.Random(seed)
    simulation = Simulation()
    simulation.commit(*(change(author) for _ in range(12)))
    refreshing = 0
    for _ in range(150):
        match author.randrange(12):
            case 0 | 1:
                simulation.commit(*(change(author) for _ in range(author.choice((1, 1, 3)))))
            case 2 | 3:
                simulation.large(_large(author), fails=not author.randrange(4))
            case 4 if len(simulation.followers) < 14:
                simulation.subscribe(author.choice(QUERIES), author.choice(("one", "other")))
            case 5:
                begun = [each for each in simulation.followers if each.items and not each.gone]
                if begun and not author.randrange(4):
                    simulation.unsubscribe(author.choice(begun))
            case 6:
                simulation.fork()
            case 7:
                simulation.fetched()
            case _ if simulation.tasks:
                simulation.take(author.randrange(len(simulation.tasks)))
        refreshing = max(refreshing, simulation.refreshing)
    simulation.settle()
    assert refreshing or first_steps < 0, "a story without refreshes proves nothing"
    assert simulation.refreshing == 0
    for follower in simulation.followers:
        if not follower.gone:
            assert isinstance(simulation.spu(follower), IncrementalSpu)
            simulation.unsubscribe(follower)
    simulation.commit("DROP ALL")
    spus, dictionary = simulation.engine.spus, simulation.engine.graph.dictionary
    assert (spus.subscriptions, spus.spus, spus.replacement.processes, len(spus.registry.groups)) == (0, 0, 0, 0)
    assert len(dictionary) == 1, "terms of results that nobody keeps"


def test_a_refreshed_subscription_ends_if_the_new_result_is_too_large(large_ones):
    simulation = Simulation(query_rules(max_query_memory=512 * 4))
    follower = simulation.subscribe("SELECT ?s ?o { ?s <urn:p> ?o }")
    simulation.commit("INSERT DATA { <urn:a> <urn:p> 1 }")
    many = ", ".join(map(str, range(9)))
    simulation.followers.clear()
    simulation.large(f"INSERT DATA {{ <urn:a> <urn:p> {many} }} ; CLEAR SILENT GRAPH <urn:none>")
    simulation.settle()
    last = follower.items[-1]
    assert isinstance(last, SubscribeFailed)
    assert "max_query_memory" in last.description
    assert (simulation.engine.spus.subscriptions, simulation.engine.spus.spus) == (0, 0)


def test_a_large_change_is_notified_once_and_the_next_small_one_incrementally(open_harness):
    harness = open_harness()
    many = Client(harness, "SELECT ?o { ?s <a:big> ?o }")
    one = Client(harness, "SELECT ?o { <a:subject-with-a-long-name-7> <a:big> ?o }")
    for client in (many, one):
        client.future.result(WAIT)
    harness.update(LARGE)
    evaluated(harness.scheduler)
    harness.update(data(COUNT))
    harness.update("CLEAR DEFAULT")
    evaluated(harness.scheduler)
    expected = [(0, [], []), (1, list(range(COUNT)), []), (2, [COUNT], []), (3, [], list(range(COUNT + 1)))]
    assert many.received() == expected
    assert one.received() == [(0, [], []), (1, [7], []), (2, [], [7])]
