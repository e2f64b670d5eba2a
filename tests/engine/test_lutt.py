"""The look-up triples table: exactly the entries whose pattern a changed quad matches."""

from __future__ import annotations

import itertools

import pyoxigraph as ox
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.lutt import EVERYTHING, Lutt, Watch

A, B, C, G, H = (ox.NamedNode(f"http://example.org/{name}") for name in "abcgh")
ONE = ox.Literal(1)

terms = st.sampled_from([A, B, C, G])
maybe = st.one_of(st.none(), terms)
watches = st.one_of(
    st.builds(Watch, maybe, maybe, maybe, st.one_of(st.none(), st.sampled_from([G, H]))),
    st.builds(Watch, maybe, maybe, maybe, st.none(), st.just(True)),
)
quads = st.builds(ox.Quad, terms, terms, terms, st.sampled_from([G, H, ox.DefaultGraph()]))


def matches(watch: Watch, quad: ox.Quad) -> bool:
    in_default = isinstance(quad.graph_name, ox.DefaultGraph)
    return (
        watch.subject in (None, quad.subject)
        and watch.predicate in (None, quad.predicate)
        and watch.object in (None, quad.object)
        and (in_default if watch.default_graph else watch.graph in (None, quad.graph_name))
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(watches, max_size=4), max_size=6), st.lists(quads, max_size=3), st.sets(st.integers(0, 5)))
def test_hits_are_what_matches(patterns, changed, leaving):
    graph = LiveGraph()
    lutt: Lutt[int] = Lutt(graph)
    keys = [lutt.add(some, number) for number, some in enumerate(patterns)]
    for number in leaving:
        if number < len(keys):
            lutt.remove(keys[number], number)
    ids = [graph.intern_quad(quad) for quad in changed]
    expected = {
        number
        for number, some in enumerate(patterns)
        if number not in leaving and any(matches(watch, quad) for watch in some for quad in changed)
    }
    assert set(lutt.hits(ids)) == expected


def test_every_combination_of_bound_positions():
    graph = LiveGraph()
    lutt: Lutt[Watch] = Lutt(graph)
    for s, p, o, g in itertools.product((None, A), (None, B), (None, ONE), (None, G)):
        lutt.add([Watch(s, p, o, g)], Watch(s, p, o, g))
    assert len(lutt) == 16
    assert len(lutt.hits([graph.intern_quad(ox.Quad(A, B, ONE, G))])) == 16
    assert len(lutt.hits([graph.intern_quad(ox.Quad(A, B, ONE, H))])) == 8
    assert len(lutt.hits([graph.intern_quad(ox.Quad(C, C, C, H))])) == 1


def test_default_graph_is_told_from_named_graphs():
    graph = LiveGraph()
    lutt: Lutt[str] = Lutt(graph)
    lutt.add([Watch(default_graph=True)], "default")
    lutt.add([Watch()], "any")
    lutt.add([Watch(graph=G)], "g")
    assert set(lutt.hits([graph.intern_quad(ox.Quad(A, B, C))])) == {"default", "any"}
    assert set(lutt.hits([graph.intern_quad(ox.Quad(A, B, C, G))])) == {"g", "any"}
    assert graph.intern_graph(ox.DefaultGraph()) == DEFAULT_GRAPH


def test_literals_are_watched_in_the_one_form_they_have():
    graph = LiveGraph()
    lutt: Lutt[str] = Lutt(graph)
    integer = ox.NamedNode("http://www.w3.org/2001/XMLSchema#integer")
    lutt.add([Watch(object=ox.Literal("01", datatype=integer))], "one")
    assert set(lutt.hits([graph.intern_quad(ox.Quad(A, B, ONE))])) == {"one"}


def test_an_entry_is_hit_once_and_leaves_whole():
    graph = LiveGraph()
    lutt: Lutt[str] = Lutt(graph)
    keys = lutt.add([Watch(subject=A), Watch(subject=A), Watch(object=C)], "x")
    quad = graph.intern_quad(ox.Quad(A, B, C))
    assert lutt.hits([quad, quad]) == {"x": None}
    lutt.remove(keys, "x")
    assert lutt.hits([quad]) == {}
    assert len(lutt) == 0
    graph.dictionary.sweep()
    assert len(graph.dictionary) == 1


def test_a_pattern_of_another_subscription_stays():
    graph = LiveGraph()
    lutt: Lutt[str] = Lutt(graph)
    keys = lutt.add([Watch(subject=A)], "x")
    lutt.add([Watch(subject=A)], "y")
    lutt.remove(keys, "x")
    graph.dictionary.sweep()
    assert set(lutt.hits([graph.intern_quad(ox.Quad(A, B, C))])) == {"y"}


def test_everything_is_hit_by_anything():
    graph = LiveGraph()
    lutt: Lutt[str] = Lutt(graph)
    lutt.add(EVERYTHING.watches, "x")
    for quad in (ox.Quad(A, B, C), ox.Quad(A, B, C, G)):
        assert set(lutt.hits([graph.intern_quad(quad)])) == {"x"}
