"""Subscriptions that need the state before a large change read it from a view: the change is not undone for them."""

from __future__ import annotations

import random
from itertools import product

import pytest
from scheduler_harness import WAIT, Client, evaluated
from test_first_results import QUERIES, change
from test_full_refresh import Simulation, _large
from test_staged_changes import COUNT, data

from edge.engine.store.earlier_index import EarlierIndex
from edge.engine.store.graph import LiveGraph
from edge.engine.store.triple_index import TripleIndex, leaf_of, members

GRAPH = 3


@pytest.mark.parametrize("seed", range(30))
def test_the_view_has_the_triples_from_before(seed):
    author = random.Random(seed)
    triples = list(product(range(4), range(3), range(4)))
    before, now, gone = TripleIndex(), TripleIndex(), TripleIndex()
    changed = {}
    for triple in triples:
        was, is_ = author.random() < 0.5, author.random() < 0.5
        if was:
            before.add(*triple)
        if is_:
            now.add(*triple)
        if was != is_:
            changed[*triple, GRAPH] = is_
        if was and not is_:
            gone.add(*triple)
    view = EarlierIndex(now, GRAPH, changed, sum(changed.values()), gone)
    assert view.size == before.size
    for s, p, o in product((*range(4), None), (*range(3), None), (*range(4), None)):
        assert sorted(view.match(s, p, o)) == sorted(before.match(s, p, o))
        assert view.estimate(s, p, o) >= before.estimate(s, p, o)
    for s, p, o in triples:
        assert view.contains(s, p, o) == before.contains(s, p, o)
        for leaf, expected in (
            (view.objects(s, p), before.objects(s, p)),
            (view.subjects(p, o), before.subjects(p, o)),
        ):
            assert leaf == expected == leaf_of(set(members(expected)))
    assert {s for s in view.all_subjects() for p in view.predicates_of(s) if view.objects(s, p) is not None} == {
        s for s, _, _ in before.match(None, None, None)
    }


def test_a_large_leaf_is_made_once():
    now = TripleIndex()
    for subject in range(200):
        now.add(subject, 1, 7)
    view = EarlierIndex(now, GRAPH, {(0, 1, 7, GRAPH): True}, 1, TripleIndex())
    assert view.subjects(1, 7) == set(range(1, 200))
    assert view.subjects(1, 7) is view.subjects(1, 7)


@pytest.fixture
def large_ones(monkeypatch):
    """Each change that clears a graph is a large one, and none is too much to be followed."""
    monkeypatch.setattr("edge.engine.updates.attempts.STAGED_FROM", 0)


@pytest.mark.parametrize("expensive", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_notifications_of_large_changes_are_exact(seed, expensive, large_ones, monkeypatch):
    views = 0
    make = EarlierIndex.__init__

    def counted(*arguments):
        nonlocal views
        views += 1
        make(*arguments)

    monkeypatch.setattr(EarlierIndex, "__init__", counted)
    if expensive:
        monkeypatch.setattr("edge.engine.subscriptions.demotion.STEPS", 3)
        monkeypatch.setattr("edge.engine.subscriptions.demotion.STEPS_PER_QUAD", 0)
    author = random.Random(seed)
    simulation = Simulation()
    simulation.commit(*(change(author) for _ in range(12)))
    for _ in range(80):
        match author.randrange(8):
            case 0:
                simulation.commit(*(change(author) for _ in range(author.choice((1, 1, 3)))))
            case 1 | 2 | 3:
                simulation.large(_large(author), fails=not author.randrange(4))
            case 4 | 5 if len(simulation.followers) < 14:
                simulation.subscribe(author.choice(QUERIES), author.choice(("one", "other")))
            case 6:
                simulation.fork()
                simulation.fetched()
            case _ if simulation.tasks:
                simulation.take(author.randrange(len(simulation.tasks)))
    simulation.settle()
    assert views, "a story without views proves nothing"


QUERY = "SELECT ?o ?x { ?s <a:p> ?o OPTIONAL { ?s <a:q> ?x } }"


@pytest.mark.parametrize("verb", ["INSERT", "DELETE"])
def test_a_large_change_with_few_hits_is_not_undone_quad_by_quad(verb, open_harness, monkeypatch):
    harness = open_harness()
    client = Client(harness, QUERY)
    client.future.result(WAIT)
    large = data(*range(COUNT), verb=verb)
    few = f"{large[:-1]} . <a:s1> <a:q> 1 . <a:s2> <a:q> 2 }}"
    harness.update("INSERT DATA { <a:s1> <a:p> 1 . <a:s2> <a:p> 2 . <a:s3> <a:p> 3 }")
    if verb == "DELETE":
        harness.update(few.replace("DELETE", "INSERT"))
    evaluated(harness.scheduler)
    changed = []
    for name in ("add", "remove"):
        monkeypatch.setattr(LiveGraph, name, lambda graph, quad, name=name: changed.append((name, quad)))
    harness.update(few)
    evaluated(harness.scheduler)
    last = client.items[-1].delta
    rows = [sorted(str(row[1]) for row in rows) for rows in (last.added, last.removed)]
    numbers = sorted(f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>' for number in (1, 2))
    assert rows == ([numbers, ["None"] * 2] if verb == "INSERT" else [["None"] * 2, numbers])
    assert not changed
