"""The mirror: the live graph in Oxigraph, consistent at every moment."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pyoxigraph as ox
import pytest
from engine_world import NOW, ask, new_engine, no_loader, run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge.engine.engine import Engine
from edge.engine.executed import Executed
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.requests import UpdateRequest
from edge.engine.start import open_engine
from edge.engine.store import mirror as mirror_module
from edge.engine.store.changes import ChangeSet, as_quad
from edge.engine.store.graph import LiveGraph
from edge.engine.store.graph_copy import GraphCopy
from edge.engine.store.mirror import Mirror
from edge.engine.store.oxigraph_transaction import apply_atomically
from edge.protocol.errors import NotReady, UpdateFailed
from tests.support.examples import examples
from tests.support.settings import query_rules
from tests.support.waiting import wait_for

T = TypeVar("T")

EX = "http://example.org/"


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


P = ex("p")
nodes = st.sampled_from([ex("a"), ex("b"), ox.BlankNode("x"), ox.BlankNode("y")])
objects = st.one_of(nodes, st.sampled_from([ox.Literal(1), ox.Literal('"} \\\n'), ox.Literal("x", language="en")]))
triple_terms = st.builds(ox.Triple, nodes, st.just(P), objects)
graph_names = st.sampled_from([ox.DefaultGraph(), ex("g"), ex("h"), ox.BlankNode("g")])
quads = st.builds(ox.Quad, nodes, st.just(P), st.one_of(objects, objects, triple_terms), graph_names)


@settings(max_examples=examples(300), deadline=None)
@given(st.sets(quads, max_size=8), st.sets(quads, max_size=8), st.sets(st.sampled_from([ex("g"), ex("n")])))
def test_a_store_reaches_the_target_state_in_one_transaction(before, after, empty):
    store = ox.Store()
    store.extend(before)
    old, new = set(store), set(after)
    graphs_before = set(store.named_graphs())
    graphs = {quad.graph_name for quad in new if not isinstance(quad.graph_name, ox.DefaultGraph)} | empty
    changed = dict.fromkeys(graphs - graphs_before, True) | dict.fromkeys(graphs_before - graphs, False)
    apply_atomically(store, list(old - new), list(new - old), changed)
    assert set(store) == new
    assert set(store.named_graphs()) == graphs


@settings(max_examples=examples(50), deadline=None)
@given(st.text(), st.sampled_from(["en", "de-CH"]))
def test_any_text_is_copied_unchanged(text, language):
    store = ox.Store()
    some = [ox.Quad(ex("a"), P, ox.Literal(text)), ox.Quad(ex("a"), P, ox.Literal(text, language=language), ex("g"))]
    store.add(ox.Quad(ex("old"), P, ox.Literal(1)))
    apply_atomically(store, list(store), some, {ex("g"): True})
    assert set(store) == set(some)
    apply_atomically(store, some, [], {ex("g"): False})
    assert set(store) == set()
    assert list(store.named_graphs()) == []


class Parts:
    """A mirror of a set of quads, and of an empty graph."""

    def __init__(self, *, shared: bool) -> None:
        self.quads: set[ox.Quad] = set()
        self.graph = LiveGraph()
        self.graph.create(self.graph.intern_graph(ex("empty")))
        self.mirror = Mirror(self.graph, threading.RLock(), shared=shared)

    def change(self, added: set[ox.Quad], removed: set[ox.Quad]) -> None:
        added, removed = added - self.quads, removed & self.quads - added
        self.quads = self.quads - removed | added
        for each in removed:
            self.graph.remove(self.graph.intern_quad(each))
        for each in added:
            self.graph.add(self.graph.intern_quad(each))
        self.mirror.note(ChangeSet(tuple(added), tuple(removed)))


def filling() -> bool:
    """Return whether a mirror is being filled in the background."""
    return any(thread.name == "mirror" for thread in threading.enumerate())


def quad(number: int, value: int = 0) -> ox.Quad:
    return ox.Quad(ex(f"s{number}"), P, ox.Literal(value))


@pytest.mark.parametrize("shared", [False, True])
def test_mirror_follows_every_change_after_its_first_use(shared):
    parts = Parts(shared=shared)
    parts.change({quad(1)}, set())
    assert not parts.mirror.ready, "before its first use it costs nothing"
    assert set(parts.mirror.open()) == {quad(1)}
    assert list(parts.mirror.open().named_graphs()) == [ex("empty")]
    parts.change({quad(2)}, {quad(1)})
    parts.change({quad(1), quad(3)}, set())
    parts.change(set(), {quad(3)})
    assert set(parts.mirror.open()) == parts.quads == {quad(1), quad(2)}


@pytest.mark.parametrize("shared", [False, True])
def test_mirror_is_renewed_when_it_holds_more_garbage_than_quads(monkeypatch, shared):
    monkeypatch.setattr(mirror_module, "MIN_GARBAGE", 50)
    parts = Parts(shared=shared)
    parts.change({quad(number) for number in range(20)}, set())
    stores = [parts.mirror.open()]
    for value in range(1, 21):
        parts.change({quad(n, value) for n in range(20)}, {quad(n, value - 1) for n in range(20)})
        store = parts.mirror.open()
        assert set(store) == parts.quads
        assert list(store.named_graphs()) == [ex("empty")]
        wait_for(lambda: not filling(), what="the mirror to be renewed")
        if parts.mirror.open() is not stores[-1]:
            stores.append(parts.mirror.open())
    assert 3 <= len(stores) <= 9


def test_results_that_are_being_read_stay_as_they_began(monkeypatch):
    monkeypatch.setattr(mirror_module, "MIN_GARBAGE", 5)
    parts = Parts(shared=True)
    parts.change({quad(number) for number in range(20)}, set())
    answer = parts.mirror.open().query("SELECT ?s ?o { ?s ?p ?o }")
    seen = [tuple(next(answer)) for _ in range(5)]
    for value in range(1, 6):
        parts.change({quad(n, value) for n in range(20)}, {quad(n, value - 1) for n in range(20)})
        parts.mirror.open()
    seen += [tuple(row) for row in answer]
    assert {value for _, value in seen} == {ox.Literal(0)}
    assert len(seen) == 20


def test_staged_changes_are_replaced_and_taken_back():
    parts = Parts(shared=False)
    parts.change({quad(1)}, set())
    parts.mirror.open()
    parts.mirror.stage(ChangeSet(added=(quad(2),), removed=(quad(1),)))
    assert set(parts.mirror.open()) == {quad(2)}
    parts.mirror.stage(ChangeSet(added=(quad(3),)))
    assert set(parts.mirror.open()) == {quad(1), quad(3)}
    parts.mirror.note(ChangeSet())
    assert set(parts.mirror.open()) == {quad(1)}


def test_readers_see_no_half_of_an_update():
    """One lamp with one value: a query with zero or two values would have seen a partial update."""
    engine = new_engine()
    texts = [
        f"DELETE {{ <a:lamp> <a:is> ?old . ?b <a:in> ?old }} INSERT {{ <a:lamp> <a:is> {n} . _:b <a:in> {n} }} "
        "WHERE { <a:lamp> <a:is> ?old OPTIONAL { ?b <a:in> ?old } }"
        for n in range(400)
    ]
    run(engine, "INSERT DATA { <a:lamp> <a:is> -1 }")
    counts: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            counts.append(len(ask(engine, "SELECT ?v { <a:lamp> <a:is> ?v OPTIONAL { ?b <a:in> ?v } }").rows))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for text in texts:
        with engine.writing:
            run(engine, text)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert set(counts) == {1}


def test_readers_see_nothing_of_an_update_that_is_running():
    engine: Engine
    seen: list[int] = []

    def load(document: str) -> list[ox.Quad]:
        seen.append(len(ask(engine, "SELECT * { ?s ?p ?o }").rows))
        if document.endswith("fails"):
            raise UpdateFailed("no")
        return [quad(9)]

    engine = Engine(query_rules(allow_load=True), load)
    run(engine, "INSERT DATA { <a:a> <a:p> 1 }")
    assert len(ask(engine, "SELECT * { ?s ?p ?o }").rows) == 1
    general = "INSERT { ?s <a:q> ?o } WHERE { ?s <a:p> ?o FILTER(?o > 0) }"
    run(engine, f"INSERT DATA {{ <a:b> <a:p> 2 }} ; {general} ; LOAD <a:doc> ; DELETE WHERE {{ <a:a> ?p ?o }}")
    assert seen == [1]
    assert len(ask(engine, "SELECT * { ?s ?p ?o }").rows) == 3
    with pytest.raises(UpdateFailed):
        run(engine, f"CLEAR ALL ; {general} ; LOAD <a:fails>")
    assert seen == [1, 3]
    assert len(ask(engine, "SELECT * { ?s ?p ?o }").rows) == 3


def test_readers_see_nothing_before_it_is_published():
    engine = new_engine()
    assert ask(engine, "ASK { ?s ?p ?o }") is False
    executed = engine.execute([engine.prepare(UpdateRequest("INSERT DATA { <a:a> <a:p> 1 }"))], NOW)
    assert ask(engine, "ASK { ?s ?p ?o }") is False
    engine.undo(executed)
    assert ask(engine, "ASK { ?s ?p ?o }") is False
    run(engine, "INSERT DATA { <a:a> <a:p> 1 }")
    assert ask(engine, "ASK { ?s ?p ?o }") is True


def test_mirror_filled_during_a_failing_request_is_correct():
    engine = Engine(QueryRules(), no_loader)
    run(engine, "INSERT DATA { <a:a> <a:p> 1 }")
    general = "INSERT { ?s <a:q> ?o } WHERE { ?s <a:p> ?o FILTER(true) }"
    with pytest.raises(UpdateFailed):
        run(engine, f"INSERT DATA {{ <a:b> <a:p> 2 }} ; {general} ; DROP GRAPH <a:none>")
    changes = run(engine, general)
    assert [str(each.subject) for each in changes.added] == ["<a:a>"]


# Filling in pieces

NAMES = ["a", "b", "c"]
PLACES = ["{}", "GRAPH <a:g> {{ {} }}", "GRAPH <a:h> {{ {} }}"]


def some_update(author: random.Random) -> str:
    """Return updates that insert and delete a few quads, graphs and term ids repeatedly."""
    graph = author.choice(["DEFAULT", "GRAPH <a:g>", "GRAPH <a:h>"])
    triples = " . ".join(
        f"<a:{author.choice(NAMES)}> <a:{author.choice('pq')}> <a:{author.choice(NAMES)}{author.randrange(3)}>"
        for _ in range(author.randint(1, 4))
    )
    block = author.choice(PLACES).format(triples)
    general = "INSERT { ?s <a:r> ?o } WHERE { ?s <a:p>/<a:none>* ?o FILTER(STRLEN(STR(?o)) > 0) }"
    return author.choice(
        [
            f"INSERT DATA {{ {block} }}",
            f"INSERT DATA {{ {block} }}",
            f"DELETE DATA {{ {block} }}",
            f"DELETE WHERE {{ {block.replace('<a:p>', '?p')} }}",
            f"CLEAR SILENT {graph}",
            f"DROP SILENT {graph}",
            f"CREATE SILENT {author.choice(['GRAPH <a:g>', 'GRAPH <a:h>'])}",
            f"MOVE SILENT {graph.removeprefix('GRAPH ')} TO {author.choice(['<a:g>', '<a:h>', 'DEFAULT'])}",
            "INSERT DATA { _:b <a:p> [] . GRAPH <a:g> { _:b <a:q> 1 } }",
            f"{general} ; DELETE DATA {{ {block} }} ; {general}",
            f"INSERT DATA {{ {block} }} ; {general} ; DROP GRAPH <a:none>",
        ]
    )


@pytest.mark.parametrize("piece", [1, 3])
@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=160185)  # MOVE replaces a graph by one with some of the same quads
def test_a_mirror_filled_during_updates_is_exact(seed, piece):
    """This holds for any changes between two pieces: committed, uncommitted, rolled back or failed."""
    author = random.Random(seed)
    engine = new_engine()
    for _ in range(author.randint(1, 8)):
        with suppress(UpdateFailed):
            run(engine, some_update(author))
    committed = set(engine.graph.quads()), set(engine.graph.named_graphs())
    waiting: list[list[Executed]] = []
    mirrors = [engine._writer_mirror, engine._reader_mirror]

    def settle() -> None:
        nonlocal committed
        if author.random() < 0.3:
            for executed in reversed(waiting):
                engine.undo(executed)
        else:
            engine.show([step for executed in waiting for step in executed])
            committed = set(engine.graph.quads()), set(engine.graph.named_graphs())
        waiting.clear()
        engine.graph.dictionary.sweep()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror_module, "PIECE", piece)
        for _ in range(author.randint(5, 40)):
            action = author.random()
            if action < 0.5:
                author.choice(mirrors).fill_step()
            elif action < 0.8:
                with suppress(UpdateFailed):
                    request = UpdateRequest(some_update(author))
                    waiting.append(engine.execute([engine.prepare(request)], NOW))
            else:
                settle()
        store = engine._reader_mirror.open()
        assert (set(store), set(store.named_graphs())) == committed
        settle()
        for mirror in mirrors:
            store = mirror.open()
            assert (set(store), set(store.named_graphs())) == committed
            assert committed == (set(engine.graph.quads()), set(engine.graph.named_graphs()))


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_copy_in_pieces_and_its_changes_are_the_graph(seed):
    author = random.Random(seed)
    engine = new_engine()
    for _ in range(5):
        with suppress(UpdateFailed):
            run(engine, some_update(author))
    copy = GraphCopy(engine.graph)
    found, graphs = set(), set(copy.named_graphs)
    while piece := copy.take(author.randint(1, 3)):
        found |= set(map(as_quad, piece))
        for _ in range(author.randrange(3)):
            with suppress(UpdateFailed):
                copy.note(run(engine, some_update(author)))
    changes = copy.take_changes()
    assert found - set(changes.removed) | set(changes.added) == set(engine.graph.quads())
    assert graphs - set(changes.dropped) | set(changes.created) == set(engine.graph.named_graphs())
    assert not copy.take_changes()


def test_a_mirror_is_filled_in_small_pieces_between_which_updates_are_executed(monkeypatch):
    """Counted, not timed: at most this many quads are copied while `writing` is held."""
    monkeypatch.setattr(mirror_module, "PIECE", 10)
    engine = new_engine()
    run(engine, "INSERT DATA { " + " ".join(f"<a:{n}> <a:p> {n} ." for n in range(1000)) + " }")
    taken: list[int] = []
    monkeypatch.setattr(GraphCopy, "take", lambda copy, size, take=GraphCopy.take: noted(taken, take(copy, size)))
    mirror = engine._reader_mirror
    for number in range(50):
        mirror.fill_step()
        run(engine, f"INSERT DATA {{ <a:new> <a:p> {number} }}")
    assert not mirror.ready
    assert taken == [10] * 50
    assert len(set(mirror.open())) == 1050


def noted(counts: list[int], piece: list[T]) -> list[T]:
    counts.append(len(piece))
    return piece


@pytest.mark.parametrize("shared", [False, True])
def test_a_mirror_can_be_filled_in_the_background(shared):
    parts = Parts(shared=shared)
    parts.change({quad(number) for number in range(3000)}, set())
    parts.mirror.prepare()
    wait_for(lambda: parts.mirror.ready, what="the mirror")
    parts.change({quad(1, 5)}, {quad(1)})
    assert set(parts.mirror.open()) == parts.quads


def test_a_closed_mirror_is_filled_when_it_is_opened():
    parts = Parts(shared=True)
    parts.change({quad(1)}, set())
    parts.mirror.close()
    parts.mirror.prepare()
    wait_for(lambda: not filling(), what="the thread to end")
    assert not parts.mirror.ready
    assert set(parts.mirror.open()) == parts.quads


def test_a_fill_that_fails_is_begun_again(monkeypatch):
    parts = Parts(shared=True)
    parts.change({quad(number) for number in range(20)}, set())
    monkeypatch.setattr(mirror_module, "as_quad", fail_with(MemoryError()))
    with pytest.raises(MemoryError):
        parts.mirror.open()
    monkeypatch.undo()
    assert set(parts.mirror.open()) == parts.quads


def fail_with(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


def test_the_readers_mirror_delays_no_update(monkeypatch):
    """A mirror that was not read for a long time has much to apply; `note` continues meanwhile."""
    parts = Parts(shared=True)
    parts.change({quad(1)}, set())
    parts.mirror.open()
    parts.change({quad(2)}, set())
    moving, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        moving.set()
        assert go_on.wait(20)
        apply_atomically(*given)

    monkeypatch.setattr(mirror_module, "apply_atomically", slow)
    reader = threading.Thread(target=parts.mirror.open)
    reader.start()
    assert moving.wait(20)
    parts.change({quad(3)}, {quad(1)})
    go_on.set()
    reader.join(20)
    assert set(parts.mirror.open()) == {quad(2), quad(3)}


def test_an_update_that_needs_the_writers_mirror_delays_no_other_client(monkeypatch):
    filling, go_on = threading.Event(), threading.Event()

    def wait_first(mirror: Mirror, fill: Callable[[Mirror], None] = Mirror.fill) -> None:
        filling.set()
        assert go_on.wait(20)
        fill(mirror)

    monkeypatch.setattr(Mirror, "fill", wait_first)
    scheduler = open_engine(None)
    general = "INSERT { ?s <a:q> ?o } WHERE { ?s <a:p>/<a:none>* ?o }"
    first = scheduler.update([UpdateRequest(general, source="first")])
    assert filling.wait(20)
    scheduler.update([UpdateRequest("INSERT DATA { <a:s> <a:p> 1 }", source="other")]).result(20)
    assert not first.done()
    go_on.set()
    assert first.result(20)[0].added == 1
    assert scheduler.update([UpdateRequest(general, source="first")]).result(20)[0].added == 0
    assert scheduler.close()


def test_a_mirror_that_is_closed_is_not_filled_for_an_update():
    parts = Parts(shared=False)
    parts.change({quad(1)}, set())
    parts.mirror.close()
    with pytest.raises(NotReady):
        parts.mirror.fill()
