"""The mirror: the live graph as Oxigraph sees it, at every moment whole."""

from __future__ import annotations

import threading

import pyoxigraph as ox
import pytest
from engine_world import NOW, ask, new_engine, no_loader, run
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine import mirror as mirror_module
from edge.engine.atomic import apply_atomically
from edge.engine.changes import ChangeSet
from edge.engine.engine import Engine
from edge.engine.general import Rules
from edge.engine.mirror import Mirror
from edge.engine.requests import UpdateRequest
from edge.protocol.errors import UpdateFailed

EX = "http://example.org/"


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


P = ex("p")
nodes = st.sampled_from([ex("a"), ex("b"), ox.BlankNode("x"), ox.BlankNode("y")])
objects = st.one_of(nodes, st.sampled_from([ox.Literal(1), ox.Literal('"} \\\n'), ox.Literal("x", language="en")]))
triple_terms = st.builds(ox.Triple, nodes, st.just(P), objects)
graph_names = st.sampled_from([ox.DefaultGraph(), ex("g"), ex("h"), ox.BlankNode("g")])
quads = st.builds(ox.Quad, nodes, st.just(P), st.one_of(objects, objects, triple_terms), graph_names)


@settings(max_examples=300, deadline=None)
@given(st.sets(quads, max_size=8), st.sets(quads, max_size=8), st.sets(st.sampled_from([ex("g"), ex("n")])))
def test_a_store_is_changed_in_one_transaction_to_what_is_wanted(before, after, empty):
    store = ox.Store()
    store.extend(before)
    old, new = set(store), set(after)
    graphs_before = set(store.named_graphs())
    graphs = {quad.graph_name for quad in new if not isinstance(quad.graph_name, ox.DefaultGraph)} | empty
    changed = dict.fromkeys(graphs - graphs_before, True) | dict.fromkeys(graphs_before - graphs, False)
    apply_atomically(store, list(old - new), list(new - old), changed)
    assert set(store) == new
    assert set(store.named_graphs()) == graphs


@settings(max_examples=50, deadline=None)
@given(st.text(), st.sampled_from(["en", "de-CH"]))
def test_any_text_goes_through(text, language):
    store = ox.Store()
    some = [ox.Quad(ex("a"), P, ox.Literal(text)), ox.Quad(ex("a"), P, ox.Literal(text, language=language), ex("g"))]
    store.add(ox.Quad(ex("old"), P, ox.Literal(1)))
    apply_atomically(store, list(store), some, {ex("g"): True})
    assert set(store) == set(some)
    apply_atomically(store, some, [], {ex("g"): False})
    assert set(store) == set()
    assert list(store.named_graphs()) == []


class Parts:
    """A mirror of a set of quads."""

    def __init__(self, *, shared: bool) -> None:
        self.quads: set[ox.Quad] = set()
        self.fillings = 0
        self.mirror = Mirror(self._dump, threading.RLock(), shared=shared)

    def _dump(self) -> tuple[list[ox.Quad], list[ox.NamedNode]]:
        self.fillings += 1
        return list(self.quads), [ex("empty")]

    def change(self, added: set[ox.Quad], removed: set[ox.Quad]) -> None:
        added, removed = added - self.quads, removed & self.quads - added
        self.quads = self.quads - removed | added
        self.mirror.note(ChangeSet(tuple(added), tuple(removed)))


def quad(number: int, value: int = 0) -> ox.Quad:
    return ox.Quad(ex(f"s{number}"), P, ox.Literal(value))


@pytest.mark.parametrize("shared", [False, True])
def test_follows_every_change_from_its_first_use_on(shared):
    parts = Parts(shared=shared)
    parts.change({quad(1)}, set())
    assert parts.fillings == 0, "before its first use it costs nothing"
    assert set(parts.mirror.open()) == {quad(1)}
    assert list(parts.mirror.open().named_graphs()) == [ex("empty")]
    parts.change({quad(2)}, {quad(1)})
    parts.change({quad(1), quad(3)}, set())
    parts.change(set(), {quad(3)})
    assert set(parts.mirror.open()) == parts.quads == {quad(1), quad(2)}
    assert parts.fillings == 1


@pytest.mark.parametrize("shared", [False, True])
def test_is_renewed_when_it_holds_more_garbage_than_quads(monkeypatch, shared):
    monkeypatch.setattr(mirror_module, "MIN_GARBAGE", 50)
    parts = Parts(shared=shared)
    parts.change({quad(number) for number in range(20)}, set())
    stores = [parts.mirror.open()]
    for value in range(1, 21):
        parts.change({quad(n, value) for n in range(20)}, {quad(n, value - 1) for n in range(20)})
        store = parts.mirror.open()
        assert set(store) == parts.quads
        assert list(store.named_graphs()) == [ex("empty")]
        if store is not stores[-1]:
            stores.append(store)
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


def test_there_are_as_many_equal_stores_as_are_wanted(monkeypatch):
    """Whatever happens between: changes, changes taken back, the renewal of what has too much garbage."""
    monkeypatch.setattr(mirror_module, "MIN_GARBAGE", 30)
    parts = Parts(shared=False)
    parts.change({quad(number) for number in range(10)}, set())
    for value, wanted in enumerate([1, 3, 2, 3, 1, 4, 4, 2, 4], start=1):
        parts.change({quad(n, value) for n in range(10)}, {quad(n, value - 1) for n in range(10)})
        stores = parts.mirror.open_many(wanted, 4)
        assert len({id(store) for store in stores}) == len(stores) == wanted
        parts.mirror.stage(ChangeSet(added=(quad(99),), dropped=(ex("empty"),)))
        parts.mirror.open()
        parts.mirror.note(ChangeSet())
        for store in (parts.mirror.open(), *parts.mirror.open_many(wanted, 4)):
            assert set(store) == parts.quads
            assert list(store.named_graphs()) == [ex("empty")]


def test_stores_that_are_not_kept_are_made_anew():
    parts = Parts(shared=False)
    parts.change({quad(1)}, set())
    first, second, third = parts.mirror.open_many(3, 3)
    assert parts.mirror.open_many(1, 2) == [first]
    assert parts.mirror.open_many(2, 3) == [first, second]
    assert third not in parts.mirror.open_many(3, 3)
    assert parts.mirror.open_many(1, 1) == [first]
    parts.change({quad(2)}, set())
    assert set(second) == {quad(1)}, "nobody sees to it any more"
    assert [set(store) for store in parts.mirror.open_many(2, 2)] == [{quad(1), quad(2)}] * 2


def test_readers_see_no_half_of_an_update():
    """One lamp, one value: a query that saw none or two would have seen the middle of an update."""
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

    engine = Engine(Rules(allow_load=True), load)
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


def test_filled_in_the_middle_of_a_request_that_fails():
    engine = Engine(Rules(), no_loader)
    run(engine, "INSERT DATA { <a:a> <a:p> 1 }")
    general = "INSERT { ?s <a:q> ?o } WHERE { ?s <a:p> ?o FILTER(true) }"
    with pytest.raises(UpdateFailed):
        run(engine, f"INSERT DATA {{ <a:b> <a:p> 2 }} ; {general} ; DROP GRAPH <a:none>")
    changes = run(engine, general)
    assert [str(each.subject) for each in changes.added] == ["<a:a>"]
