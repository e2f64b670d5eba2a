"""The fair queue of evaluations: order and budgets, with explicit times."""

from __future__ import annotations

import pytest

from edge.engine.admission.evaluation_queue import BURST, EvaluationQueue


def queue(budget: float = 0.5) -> EvaluationQueue[str]:
    made: EvaluationQueue[str] = EvaluationQueue()
    made.limit(budget)
    return made


def test_clients_take_turns():
    waiting = queue()
    for item in "abc":
        waiting.put(["many"], item)
    waiting.put(["one"], "x")
    assert [waiting.take(0.0) for _ in range(5)] == [("many", "a"), ("one", "x"), ("many", "b"), ("many", "c"), None]


def test_a_client_beyond_its_budget_waits_and_others_do_not():
    waiting = queue(0.5)
    waiting.charge("greedy", BURST + 2.0, now=10.0)
    waiting.put(["greedy"], "late")
    waiting.put(["modest"], "soon")
    assert waiting.take(10.0) == ("modest", "soon")
    assert waiting.take(10.0) is None
    assert waiting.wait(10.0) == pytest.approx(4.0)  # two seconds at half a second per second
    assert waiting.take(14.0) == ("greedy", "late")
    assert waiting.wait(14.0) is None


def test_the_interval_grows_with_the_cost_of_an_evaluation():
    """Evaluations that start as early as permitted use the share of time that the budget gives, cheap or expensive."""
    for cost in (0.01, 0.3, 5.0):
        waiting = queue(0.25)
        now = used = 0.0
        while now < 1000:
            waiting.put(["client"], "query")
            now += waiting.wait(now) or 0.0
            assert waiting.take(now) is not None
            used += cost
            now += cost
            waiting.charge("client", cost, now)
        assert used == pytest.approx(0.25 * now, abs=BURST + 2 * cost)


def test_the_subscriber_with_the_smallest_debt_pays():
    waiting = queue()
    waiting.charge("greedy", 10.0, now=0.0)
    waiting.put(["greedy", "modest"], "shared")
    assert waiting.take(0.0) == ("modest", "shared")


@pytest.mark.parametrize(("budget", "client"), [(0.0, "client"), (0.5, "")])
def test_without_a_budget_and_for_the_gateway_itself_nothing_waits(budget, client):
    waiting = queue(budget)
    waiting.charge(client, 1000.0, now=0.0)
    waiting.put([client], "query")
    assert waiting.take(0.0) == (client, "query")


def test_paid_debts_are_forgotten():
    waiting = queue(1.0)
    for number in range(5000):
        waiting.charge(f"client {number}", 1.0, now=float(number))
    assert len(waiting._rate._full_at) <= 1001
