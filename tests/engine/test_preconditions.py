"""Preconditions of updates: an update is refused if its graph has changed since the start of a watch."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from engine_world import NOW, new_engine, run

from edge.engine.requests import GraphWatch, Precondition, UpdateRequest
from edge.engine.updates.update_attempt import Unfinished, UpdateAttempt
from edge.protocol.access import ANYBODY
from edge.protocol.errors import Forbidden, PreconditionFailed
from tests.support.settings import query_rules

G, H = "urn:g", "urn:h"
MINE = f"INSERT DATA {{ GRAPH <{G}> {{ <urn:s> <urn:mine> 1 }} }}"
LARGE = f"INSERT DATA {{ GRAPH <{G}> {{ {' '.join(f'<urn:s> <urn:p> {number} .' for number in range(5000))} }} }}"


def refused(engine, graph: str, text: str = MINE, **condition: object) -> bool:
    """Run an update with a condition, and check that it changes nothing if it is refused."""
    before = set(engine.graph.quads())
    try:
        run(engine, text, condition=Precondition(graph, **condition))
    except PreconditionFailed:
        assert set(engine.graph.quads()) == before
        return True
    return False


@pytest.mark.parametrize(
    ("graph", "change", "seen"),
    [
        (G, f"INSERT DATA {{ GRAPH <{G}> {{ <urn:s> <urn:p> 2 }} }}", True),
        (G, f"DELETE DATA {{ GRAPH <{G}> {{ <urn:s> <urn:p> 1 }} }}", True),
        (G, f"DROP GRAPH <{G}>", True),
        (G, f"MOVE <{H}> TO <{G}>", True),
        (G, f"DELETE WHERE {{ GRAPH <{G}> {{ ?s ?p ?o }} }}", True),
        (G, f"INSERT DATA {{ GRAPH <{G}> {{ <urn:s> <urn:p> 1 }} }}", False),
        (G, f"DROP GRAPH <{H}>", False),
        (G, "CLEAR DEFAULT", False),
        (G, f"DELETE DATA {{ GRAPH <{G}> {{ <urn:s> <urn:p> 9 }} }}", False),
        ("", "CLEAR DEFAULT", True),
        ("", f"DROP GRAPH <{G}>", False),
        ("urn:new", "CREATE GRAPH <urn:new>", True),
        ("urn:new", "INSERT DATA { GRAPH <urn:new> { <urn:s> <urn:p> 1 } } ; DROP GRAPH <urn:new>", False),
    ],
)
def test_only_a_change_of_the_graph_marks_its_watch(graph, change, seen):
    engine = new_engine()
    run(
        engine,
        f"INSERT DATA {{ <urn:s> <urn:p> 1 GRAPH <{G}> {{ <urn:s> <urn:p> 1 }} GRAPH <{H}> {{ <urn:s> <urn:p> 3 }} }}",
    )
    before, watch = engine.preconditions.watch(graph), engine.preconditions.watch(graph)
    assert not refused(engine, graph, f"INSERT DATA {{ GRAPH <{G}> {{ <urn:s> <urn:p> 1 }} }}", watch=before)
    run(engine, change)
    assert watch.changed == seen
    assert refused(engine, graph, watch=watch) == seen
    assert not refused(engine, graph, watch=engine.preconditions.watch(graph))


def test_an_undone_change_marks_the_watch():
    engine = new_engine()
    watch = engine.preconditions.watch(G)
    executed = engine.execute([engine.prepare(UpdateRequest(MINE))], NOW)
    engine.undo(executed)
    assert watch.changed  # it may be too strict, but never too lax


def test_a_graph_must_exist_or_not():
    engine = new_engine()
    assert refused(engine, G, exists=True)
    assert not refused(engine, G, exists=False)
    assert refused(engine, G, exists=False)
    assert not refused(engine, G, exists=True)
    run(engine, f"DROP GRAPH <{G}>")
    assert refused(engine, G, exists=True)


def finish(engine, large, attempt) -> None:
    """Execute a large update to its end, while another graph changes."""
    while True:
        try:
            engine.show(engine.execute([large], NOW, attempt))
        except Unfinished:
            run(engine, f"INSERT DATA {{ GRAPH <{H}> {{ <urn:s> <urn:p> 1 }} }} ; DROP GRAPH <{H}>")
        else:
            return


@pytest.mark.parametrize("change", [MINE, f"CLEAR GRAPH <{G}>", f"DROP GRAPH <{G}>"])
def test_a_change_between_the_pieces_of_a_large_update_is_noticed(change):
    engine = new_engine()
    run(engine, f"INSERT DATA {{ GRAPH <{G}> {{ <urn:s> <urn:first> 1 }} }}")
    watch, attempt = engine.preconditions.watch(G), UpdateAttempt()
    large = engine.prepare(UpdateRequest(LARGE, condition=Precondition(G, watch=watch)))
    for _ in range(2):
        with pytest.raises(Unfinished):
            engine.execute([large], NOW, attempt)
    run(engine, change)
    before = set(engine.graph.quads())
    with pytest.raises(PreconditionFailed):
        finish(engine, large, attempt)
    assert set(engine.graph.quads()) == before
    assert attempt.staged is None


def test_a_large_update_is_applied_if_only_other_graphs_change():
    engine = new_engine()
    watch, attempt = engine.preconditions.watch(G), UpdateAttempt()
    large = engine.prepare(UpdateRequest(LARGE, condition=Precondition(G, exists=False, watch=watch)))
    finish(engine, large, attempt)
    assert watch.changed  # its own change
    assert sum(quad.graph_name.value == G for quad in engine.graph.quads()) == 5000


@pytest.mark.parametrize(
    "text",
    [
        LARGE,
        f"{LARGE} ; INSERT {{ GRAPH <{G}> {{ ?s <urn:q> ?o }} }} WHERE {{ ?s <urn:p> ?o }}",
        f"LOAD <http://127.0.0.1:9/> INTO GRAPH <{G}>",
    ],
    ids=["staged", "evaluated outside", "loaded"],
)
def test_a_condition_that_does_not_hold_is_noticed_before_any_long_work(text):
    engine = new_engine(query_rules(allow_load=True))
    watch = engine.preconditions.watch(G)
    run(engine, MINE)
    for condition in (Precondition(G, watch=watch), Precondition(H, exists=True), Precondition(G, exists=False)):
        attempt = UpdateAttempt()
        with pytest.raises(PreconditionFailed):
            engine.execute([engine.prepare(UpdateRequest(text, condition=condition))], NOW, attempt)
        assert attempt.staged is None


def test_permissions_come_before_conditions():
    engine = new_engine(query_rules(allow_load=True))
    request = UpdateRequest(
        f"LOAD <http://127.0.0.1:9/> INTO GRAPH <{G}>",
        access=replace(ANYBODY, write=frozenset({H})),
        condition=Precondition(G, exists=True),
    )
    with pytest.raises(Forbidden):
        engine.execute([engine.prepare(request)], NOW, UpdateAttempt())


def test_a_watch_ends_with_its_request():
    engine = new_engine()
    watch = engine.preconditions.watch(G)
    assert engine.preconditions.watches
    del watch
    gc.collect()
    run(engine, MINE)
    assert not engine.preconditions.watches


def test_watches_are_compared_by_identity():
    assert GraphWatch(G) != GraphWatch(G)
