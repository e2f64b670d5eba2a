"""One engine beside one naive engine, given the same requests and compared after each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyoxigraph as ox
import pytest
from oracle import Bag, NaiveEngine, Query, Refused, as_stored, blank_nodes, canonical, canonical_triples, named_graphs

from edge.engine.changes import ChangeSet
from edge.engine.engine import Engine
from edge.engine.general import Rules
from edge.engine.query import collect
from edge.engine.requests import (
    Dataset,
    Graph,
    Notification,
    QueryRequest,
    QueryResult,
    Solutions,
    SubscribeFailed,
    UpdateRequest,
)
from edge.protocol.errors import EdgeError, Forbidden

NOW = 1_700_000_000_000_000
EVERYTHING = Query("SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { } } }")
_TRANSFER = re.compile(r"(?:ADD|COPY|MOVE) (?:GRAPH )?([a-z]+:\w+) TO ")


def no_loader(document: str) -> list[ox.Quad]:
    raise Forbidden(f"nothing loads {document}")


def new_engine(rules: Rules | None = None) -> Engine:
    return Engine(rules or Rules(), no_loader)


def run(engine: Engine, text: str, now: int = NOW, **more: object) -> ChangeSet:
    """Execute and publish one update."""
    executed = engine.execute([engine.prepare(UpdateRequest(text, **more))], now)  # type: ignore[arg-type]
    engine.show(executed)
    engine.publish(executed)
    return executed[0].changes


def ask(engine: Engine, query: Query | str) -> QueryResult:
    """The result of an ordinary query."""
    return engine.queries.run(_request(Query(query) if isinstance(query, str) else query), collect, NOW)


def current(engine: Engine, query: Query) -> tuple[tuple[str, ...], Bag]:
    """What a subscription to the query would begin with."""
    received: list[Notification | SubscribeFailed] = []
    subscription = engine.subscribe(_request(query), received.append, None, NOW)
    engine.unsubscribe(subscription.spuid)
    (first,) = received
    assert isinstance(first, Notification)
    assert first.sequence == 0
    assert first.delta.removed == ()
    return first.delta.variables, Counter(first.delta.added)


def _request(query: Query) -> QueryRequest:
    return QueryRequest(query.text, Dataset(query.default_graphs, query.named_graphs))


def _reordered(variables: Sequence[str], order: Sequence[str], bag: Bag) -> Bag:
    columns = [variables.index(name) for name in order]
    return Counter({tuple(row[column] for column in columns): count for row, count in bag.items()})


@dataclass
class Watched:
    """A subscription as its subscriber sees it, and what the naive engine says it should be."""

    query: Query
    spuid: str
    variables: tuple[str, ...]
    received: list[Notification | SubscribeFailed]
    bag: Bag
    expected: Bag
    sequence: int = 1

    @property
    def makes_blank_nodes(self) -> bool:
        """A CONSTRUCT may name the blank nodes of its template as it likes."""
        return (
            "CONSTRUCT" in self.query.text
            and re.search(r"_:\w+ ex:made|\[ ex:made|\) ex:made", self.query.text) is not None
        )


class World:
    """Both engines. Every method fails an assertion where they differ."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.engine = new_engine(rules)
        self.naive = NaiveEngine()
        self.watched: list[Watched] = []
        self.changes: list[ChangeSet] = []

    def update(self, operations: Sequence[str] | str, prefix: str = "") -> bool:
        """Run a request on both. False: both refused it."""
        operations = [operations] if isinstance(operations, str) else operations
        text = prefix + " ;\n".join(operations)
        quads, graphs = self._quads(), self._graphs()
        try:
            self.naive.update(prefix + " ; ".join(map(_as_naive, operations)))
            refused = None
        except Refused as error:
            refused = error
        if refused:
            with pytest.raises(EdgeError):
                self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
            self._check_unchanged(quads, graphs)
            return False
        executed = self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
        assert not any(each.received for each in self.watched), "told before it was published"
        self.engine.undo(executed + self.engine.execute([self.engine.prepare(UpdateRequest("DROP ALL"))], NOW))
        self._check_unchanged(quads, graphs)
        executed = self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
        self.changes.append(executed[0].changes)
        self._check_changes(executed[0].changes, quads, graphs)
        self.engine.show(executed)
        self.engine.publish(executed)
        self._check_graph()
        for each in self.watched:
            self._check_delta(each)
        return True

    def subscribe(self, query: Query) -> None:
        """Subscribe, if the query is legal."""
        try:
            names, expected = self.naive.evaluate(query)
            legal = True
        except SyntaxError:
            legal = False
        received: list[Notification | SubscribeFailed] = []
        if not legal:
            with pytest.raises(EdgeError):
                self.engine.subscribe(_request(query), received.append, None, NOW)
            return
        subscription = self.engine.subscribe(_request(query), received.append, None, NOW)
        (first,) = received
        assert isinstance(first, Notification)
        assert first.sequence == 0
        assert first.delta.removed == ()
        order = first.delta.variables
        assert order == names or ("*" in query.text and sorted(order) == sorted(names))
        received.clear()
        bag = Counter(first.delta.added)
        each = Watched(query, subscription.spuid, order, received, bag, _reordered(names, order, expected))
        self.watched.append(each)
        self._compare(each, each.expected)

    def check_query(self, query: Query) -> None:
        """The ordinary result of a query."""
        try:
            names, expected = self.naive.evaluate(query)
        except SyntaxError:
            return
        result = ask(self.engine, query)
        if isinstance(result, Solutions):
            order, bag = result.variables, Counter(result.rows)
        elif isinstance(result, Graph):
            order, bag = names, Counter({tuple(triple): 1 for triple in as_stored(result.triples)})
        else:
            order, bag = names, Counter([(ox.Literal(result),)])
        if Watched(query, "", (), [], bag, bag).makes_blank_nodes:
            known = blank_nodes(self._quads())
            assert canonical_triples(bag, known) == canonical_triples(expected, known), query
        else:
            assert bag == _reordered(names, order, expected), query

    def check_restored(self) -> None:
        """The change sets alone give the same graph."""
        engine = new_engine()
        engine.restore(self.changes)
        assert set(engine.graph.quads()) == self._quads()
        assert set(engine.graph.named_graphs()) == self._graphs()
        assert len(engine.graph) == len(self.engine.graph)

    def check_no_leak(self) -> None:
        """Everything dropped and unsubscribed: the dictionary has forgotten every term."""
        for each in self.watched:
            self.engine.unsubscribe(each.spuid)
        self.watched.clear()
        run(self.engine, "DROP ALL")
        assert len(self.engine.graph.dictionary) == 1

    def _quads(self) -> set[ox.Quad]:
        return set(self.engine.graph.quads())

    def _graphs(self) -> set[ox.NamedNode | ox.BlankNode]:
        return set(self.engine.graph.named_graphs())

    def _check_unchanged(self, quads: set[ox.Quad], graphs: set[ox.NamedNode | ox.BlankNode]) -> None:
        assert self._quads() == quads
        assert self._graphs() == graphs
        assert not any(each.received for each in self.watched)
        self._check_mirrors()
        for each in self.watched:
            assert current(self.engine, each.query)[1] == each.bag

    def _check_changes(self, changes: ChangeSet, quads: set[ox.Quad], graphs: set[ox.NamedNode | ox.BlankNode]) -> None:
        for some in (changes.added, changes.removed, changes.created, changes.dropped):
            assert len(set(some)) == len(some)
        assert set(changes.added) == self._quads() - quads
        assert set(changes.removed) == quads - self._quads()
        assert set(changes.created) == self._graphs() - graphs
        assert set(changes.dropped) == graphs - self._graphs()

    def _check_graph(self) -> None:
        assert canonical(self._quads()) == canonical(self.naive.store)
        assert named_graphs(self._graphs()) == named_graphs(self.naive.store.named_graphs())
        assert len(self.engine.graph) == len(self._quads())
        self.naive.replace(self._quads(), self._graphs())
        self._check_mirrors()

    def _check_mirrors(self) -> None:
        state = Counter((q.subject, q.predicate, q.object, _unless_default(q.graph_name)) for q in self._quads())
        state.update((None, None, None, name) for name in self._graphs())
        readers = ask(self.engine, EVERYTHING)
        assert isinstance(readers, Solutions)
        assert Counter(readers.rows) == state
        assert current(self.engine, EVERYTHING)[1] == state

    def _check_delta(self, each: Watched) -> None:
        names, new = self.naive.evaluate(each.query)
        new = _reordered(names, each.variables, new)
        notifications = list(each.received)
        each.received.clear()
        if not each.makes_blank_nodes:
            assert len(notifications) == (new != each.expected), each.query
        for notification in notifications:
            assert isinstance(notification, Notification)
            assert notification.spuid == each.spuid
            assert notification.sequence == each.sequence
            each.sequence += 1
            added, removed = Counter(notification.delta.added), Counter(notification.delta.removed)
            assert added or removed
            assert not added & removed
            assert not removed - each.bag
            if not each.makes_blank_nodes:
                assert added == new - each.expected, each.query
                assert removed == each.expected - new, each.query
            each.bag = each.bag - removed + added
        each.expected = new
        self._compare(each, new)

    def _compare(self, each: Watched, expected: Bag) -> None:
        if each.makes_blank_nodes:
            known = blank_nodes(self._quads())
            assert canonical_triples(each.bag, known) == canonical_triples(expected, known), each.query
        else:
            assert each.bag == expected, each.query


def _unless_default(name: object) -> object:
    return None if isinstance(name, ox.DefaultGraph) else name


def _as_naive(operation: str) -> str:
    """An operation for Oxigraph, to which it is no error that ADD and COPY have no source, nor MOVE onto itself."""
    match = _TRANSFER.match(operation)
    if match is None:
        return operation
    source, spare = match[1], "<urn:spare>"
    return f"MOVE {source} TO {spare} ; MOVE SILENT {spare} TO {source} ; CREATE SILENT GRAPH {source} ; {operation}"
