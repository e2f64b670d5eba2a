"""Helpers for tests of an engine: terms, updates, and a subscriber that records its notifications."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_world import NOW, new_engine, run

from edge.engine.engine import Engine
from edge.engine.requests import Dataset, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.protocol.errors import EdgeError

EX = "http://example.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIX = f"PREFIX ex: <{EX}> PREFIX xsd: <{XSD}> "


def ex(name: str) -> ox.NamedNode:
    return ox.NamedNode(EX + name)


def engine_with(data: str) -> Engine:
    engine = new_engine()
    run(engine, f"{PREFIX} INSERT DATA {{ {data} }}")
    return engine


def triples(engine: Engine) -> set[str]:
    """Return the graph in short form: `a p b`, with ` g` for triples of a named graph."""
    return {str(quad).replace(f"<{EX}", "").replace(f"<{XSD}", "").replace(">", "") for quad in engine.graph.quads()}


def refused(engine: Engine, text: str, error: type[EdgeError], **more: object) -> str:
    before, graphs = set(engine.graph.quads()), set(engine.graph.named_graphs())
    with pytest.raises(error) as caught:
        run(engine, text, **more)
    assert set(engine.graph.quads()) == before
    assert set(engine.graph.named_graphs()) == graphs
    return caught.value.description


class Client:
    """A subscriber and all its notifications."""

    def __init__(self, engine: Engine, text: str, dataset: Dataset | None = None, alias: str | None = None) -> None:
        self.engine = engine
        self.items: list[SubscriberNotification | SubscribeFailed] = []
        request = QueryRequest(PREFIX + text, dataset or Dataset())
        self.spuid = engine.subscribe(request, self.items.append, alias, NOW).spuid

    @property
    def last(self) -> SubscriberNotification:
        item = self.items[-1]
        assert isinstance(item, SubscriberNotification)
        return item

    def news(self) -> tuple[list[tuple], list[tuple]] | None:
        """Return the sorted rows added and removed since the last call, or None without a notification."""
        items = self.items.copy()
        self.items.clear()
        if not items:
            return None
        (item,) = items
        assert isinstance(item, SubscriberNotification)
        return sorted(map(plain, item.delta.added), key=str), sorted(map(plain, item.delta.removed), key=str)


def plain(row: tuple) -> tuple:
    return tuple(None if term is None else getattr(term, "value", str(term)).removeprefix(EX) for term in row)


def update(engine: Engine, text: str) -> None:
    run(engine, PREFIX + text)
