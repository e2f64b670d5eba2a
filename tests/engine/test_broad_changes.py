"""Updates with many hits: the engine evaluates a plan once if that takes fewer steps than one evaluation per hit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_client import Client, engine_with
from engine_world import new_engine, run

from edge.engine.operators.operators import Scan
from edge.engine.subscriptions import broad_changes
from edge.engine.subscriptions.broad_changes import BroadChanges
from tests.support.settings import query_rules

MANY = 300
PREFIX = "PREFIX ex: <http://example.org/> "
COMPUTED = (
    "SELECT ?t ?x { ?a ex:temperature ?t FILTER(CONTAINS(STR(?a), 'room')) "
    "BIND(IRI(CONCAT(STR(?a), '-x')) AS ?place) ?place ex:x ?x }"
)
"""BIND computes the variable that connects the patterns, so no hit leads to the other pattern."""


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One item for each triple that a pattern matched."""
    found: list[None] = []
    solutions = Scan.solutions

    def counted(self: Scan, frame: list[int | None]) -> Iterator[None]:
        for _ in solutions(self, frame):
            found.append(None)
            yield

    monkeypatch.setattr(Scan, "solutions", counted)
    return found


def readings(value: int) -> str:
    return " ".join(f"ex:room{n} ex:temperature {value + n} . ex:room{n}-x ex:x {value}." for n in range(MANY))


def test_a_window_that_slides_is_evaluated_once(scans: list[None]) -> None:
    engine = engine_with(readings(0))
    client = Client(engine, COMPUTED)
    client.news()
    scans.clear()
    run(engine, f"{PREFIX} DELETE DATA {{ {readings(0)} }} ; INSERT DATA {{ {readings(1000)} }}")
    added, removed = client.news() or ((), ())
    assert (len(added), len(removed)) == (MANY, MANY)
    # In each state: every reading, and its place.
    assert len(scans) <= 4 * MANY + 20


def test_few_hits_are_evaluated_one_by_one(scans: list[None]) -> None:
    engine = engine_with(readings(0))
    client = Client(engine, "SELECT ?t ?x { ?a ex:temperature ?t ; ex:near ?place . ?place ex:x ?x }")
    client.news()
    scans.clear()
    run(engine, f"{PREFIX} INSERT DATA {{ ex:room1 ex:near ex:room2-x . ex:room3 ex:near ex:room4-x }}")
    added, _ = client.news() or ((), ())
    assert len(added) == 2
    assert len(scans) <= 10


def test_attempts_become_rare_after_failures() -> None:
    broad = BroadChanges()
    tried = []
    for number in range(200):
        if broad.steps(1000):
            tried.append(number)
            broad.tried(success=False)
    assert tried == [0, 2, 6, 14, 30, 62, 126, 190]
    while not broad.steps(1000):
        pass
    broad.tried(success=True)
    assert all(broad.steps(1000) for _ in range(10))


def test_a_plan_with_too_many_hits_is_evaluated_as_a_whole_from_then_on(
    scans: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first change finds out: each hit evaluates every reading, which takes more than the limit of steps."""
    monkeypatch.setattr(broad_changes, "_STEPS", 1)
    engine = new_engine(query_rules(max_steps=50 * MANY))
    run(engine, f"{PREFIX} INSERT DATA {{ {readings(0)} }}")
    client = Client(engine, COMPUTED)
    costs = []
    for value in (0, 1000, 2000, 3000):
        client.news()
        scans.clear()
        run(engine, f"{PREFIX} DELETE DATA {{ {readings(value)} }} ; INSERT DATA {{ {readings(value + 1000)} }}")
        added, removed = client.news() or ((), ())
        assert (len(added), len(removed)) == (MANY, MANY)
        costs.append(len(scans))
    assert costs[0] > 10 * MANY
    assert max(costs[1:]) <= 4 * MANY + 20
