"""The look-up triples table (LUTT) returns exactly the entries whose pattern matches a changed quad."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

import pyoxigraph as ox
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.queries.subscription_index import EVERYTHING, Key, SubscriptionIndex, Watch
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from tests.support.examples import examples

T = TypeVar("T")

A, B, C, G, H = (ox.NamedNode(f"http://example.org/{name}") for name in "abcgh")
ONE = ox.Literal(1)

terms = st.sampled_from([A, B, C, G])
maybe = st.one_of(st.none(), terms)
watches = st.one_of(
    st.builds(Watch, maybe, maybe, maybe, st.one_of(st.none(), st.sampled_from([G, H]))),
    st.builds(Watch, maybe, maybe, maybe, st.none(), st.just(True)),
)
quads = st.builds(ox.Quad, terms, terms, terms, st.sampled_from([G, H, ox.DefaultGraph()]))


def add(lutt: SubscriptionIndex[T], some: Iterable[Watch], entry: T) -> list[Key]:
    keys = [watch.key(lutt.graph) for watch in some]
    for key in keys:
        lutt.add(key, entry)
    return keys


def remove(lutt: SubscriptionIndex[T], keys: Iterable[Key], entry: T) -> None:
    for key in keys:
        lutt.remove(key, entry)


def hits(lutt: SubscriptionIndex[T], *changed: ox.Quad) -> set[T]:
    return set(lutt.hits(dict.fromkeys(map(lutt.graph.intern_quad, changed), True)))


def matches(watch: Watch, quad: ox.Quad) -> bool:
    in_default = isinstance(quad.graph_name, ox.DefaultGraph)
    return (
        watch.subject in (None, quad.subject)
        and watch.predicate in (None, quad.predicate)
        and watch.object in (None, quad.object)
        and (in_default if watch.default_graph else watch.graph in (None, quad.graph_name))
    )


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.lists(watches, max_size=4), max_size=6), st.lists(quads, max_size=3), st.sets(st.integers(0, 5)))
def test_hits_are_the_matching_patterns(patterns, changed, leaving):
    graph = LiveGraph()
    lutt: SubscriptionIndex[int] = SubscriptionIndex(graph)
    keys = [add(lutt, some, number) for number, some in enumerate(patterns)]
    for number in leaving:
        if number < len(keys):
            remove(lutt, keys[number], number)
    expected = {
        number
        for number, some in enumerate(patterns)
        if number not in leaving and any(matches(watch, quad) for watch in some for quad in changed)
    }
    assert hits(lutt, *changed) == expected


def test_every_combination_of_bound_positions():
    graph = LiveGraph()
    lutt: SubscriptionIndex[Watch] = SubscriptionIndex(graph)
    for s, p, o, g in itertools.product((None, A), (None, B), (None, ONE), (None, G)):
        add(lutt, [Watch(s, p, o, g)], Watch(s, p, o, g))
    assert len(lutt) == 16
    assert len(hits(lutt, ox.Quad(A, B, ONE, G))) == 16
    assert len(hits(lutt, ox.Quad(A, B, ONE, H))) == 8
    assert len(hits(lutt, ox.Quad(C, C, C, H))) == 1


def test_the_default_graph_differs_from_named_graphs():
    graph = LiveGraph()
    lutt: SubscriptionIndex[str] = SubscriptionIndex(graph)
    add(lutt, [Watch(default_graph=True)], "default")
    add(lutt, [Watch()], "any")
    add(lutt, [Watch(graph=G)], "g")
    assert hits(lutt, ox.Quad(A, B, C)) == {"default", "any"}
    assert hits(lutt, ox.Quad(A, B, C, G)) == {"g", "any"}
    assert graph.intern_graph(ox.DefaultGraph()) == DEFAULT_GRAPH


def test_literals_are_watched_in_canonical_form():
    graph = LiveGraph()
    lutt: SubscriptionIndex[str] = SubscriptionIndex(graph)
    integer = ox.NamedNode("http://www.w3.org/2001/XMLSchema#integer")
    add(lutt, [Watch(object=ox.Literal("01", datatype=integer))], "one")
    assert hits(lutt, ox.Quad(A, B, ONE)) == {"one"}


def test_an_entry_is_hit_once_and_leaves_whole():
    graph = LiveGraph()
    lutt: SubscriptionIndex[str] = SubscriptionIndex(graph)
    keys = add(lutt, [Watch(subject=A), Watch(subject=A), Watch(object=C)], "x")
    quad = ox.Quad(A, B, C)
    assert hits(lutt, quad) == {"x"}
    remove(lutt, keys, "x")
    assert hits(lutt, quad) == set()
    assert len(lutt) == 0
    graph.dictionary.sweep()
    assert len(graph.dictionary) == 1


def test_a_pattern_of_another_subscription_stays():
    graph = LiveGraph()
    lutt: SubscriptionIndex[str] = SubscriptionIndex(graph)
    keys = add(lutt, [Watch(subject=A)], "x")
    add(lutt, [Watch(subject=A)], "y")
    remove(lutt, keys, "x")
    graph.dictionary.sweep()
    assert hits(lutt, ox.Quad(A, B, C)) == {"y"}


def test_a_pattern_without_constants_is_hit_by_any_quad():
    graph = LiveGraph()
    lutt: SubscriptionIndex[str] = SubscriptionIndex(graph)
    add(lutt, EVERYTHING.watches, "x")
    for quad in (ox.Quad(A, B, C), ox.Quad(A, B, C, G)):
        assert hits(lutt, quad) == {"x"}
