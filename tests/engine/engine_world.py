"""An engine and a naive engine that get the same requests and are compared after each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyoxigraph as ox
import pytest
from oracle import Bag, NaiveEngine, Query, Refused, as_stored, blank_nodes, canonical, canonical_triples, named_graphs
from unspecified_results import Groups, open_columns, settled

from edge.engine.engine import Engine
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.query_plans import PlanMember, QueryPlans
from edge.engine.queries.query_processor import collect
from edge.engine.requests import (
    Dataset,
    Graph,
    QueryRequest,
    QueryResult,
    Solutions,
    SubscribeFailed,
    SubscriberNotification,
    UpdateRequest,
)
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import EdgeError, Forbidden

NOW = 1_700_000_000_000_000
EVERYTHING = Query(
    "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } UNION { GRAPH ?g { } } } "
    "ORDER BY ?s LIMIT 1000000"
)
"""Evaluated as a whole on the mirror, because of LIMIT."""


def no_loader(document: str) -> list[ox.Quad]:
    raise Forbidden(f"nothing loads {document}")


def new_engine(rules: QueryRules | None = None) -> Engine:
    return Engine(rules or QueryRules(), no_loader)


def run(engine: Engine, text: str, now: int = NOW, **more: object) -> ChangeSet:
    """Execute and publish one update."""
    executed = engine.execute([engine.prepare(UpdateRequest(text, **more))], now)  # type: ignore[arg-type]
    engine.show(executed)
    engine.publish(executed)
    return executed[0].changes


def ask(engine: Engine, query: Query | str) -> QueryResult:
    """Return the result of a one-shot query."""
    question = engine.queries.question(_request(Query(query) if isinstance(query, str) else query))
    return engine.queries.run(question, collect, NOW)


def current(engine: Engine, query: Query) -> tuple[tuple[str, ...], Bag]:
    """Return the first result of a subscription to the query."""
    received: list[SubscriberNotification | SubscribeFailed] = []
    subscription = engine.subscribe(_request(query), received.append, None, NOW)
    engine.unsubscribe(subscription.spuid)
    (first,) = received
    assert isinstance(first, SubscriberNotification)
    assert first.sequence == 0
    assert first.delta.removed == ()
    return first.delta.variables, Counter(first.delta.added)


def _request(query: Query) -> QueryRequest:
    return QueryRequest(query.text, Dataset(query.default_graphs, query.named_graphs, query.readable))


def _reordered(variables: Sequence[str], order: Sequence[str], bag: Bag) -> Bag:
    columns = [variables.index(name) for name in order]
    return Counter({tuple(row[column] for column in columns): count for row, count in bag.items()})


@dataclass
class Watched:
    """A subscription as its subscriber sees it, and its result in the naive engine."""

    query: Query
    spuid: str
    variables: tuple[str, ...]
    received: list[SubscriberNotification | SubscribeFailed]
    bag: Bag
    expected: Bag
    groups: Groups | None
    """The values that the engine may choose from."""
    sequence: int = 1

    @property
    def makes_blank_nodes(self) -> bool:
        """Return whether the blank nodes are those of a CONSTRUCT template, which the engine may name freely."""
        return _makes_blank_nodes(self.query)

    @property
    def is_free(self) -> bool:
        """Return whether SPARQL leaves the value of a column open."""
        return bool(open_columns(self.variables))

    @property
    def counts(self) -> bool:
        """Return whether the multiplicity of a row is determined: not if DISTINCT separates rows that are equally
        right.
        """
        return not (self.is_free and "DISTINCT" in self.query.text.upper())


def _makes_blank_nodes(query: Query) -> bool:
    template = re.search(r"\bconstruct\b([^}]*)}", query.text, re.IGNORECASE)
    return template is not None and re.search(r"_:|[\[(]", template[1]) is not None


class World:
    """Both engines. Every method fails an assertion if they differ."""

    def __init__(self, rules: QueryRules | None = None) -> None:
        self.engine = new_engine(rules)
        self.naive = NaiveEngine()
        self.watched: dict[str, Watched] = {}
        self.changes: list[ChangeSet] = []
        self._plans = QueryPlans(self.engine.graph, self.engine.rules)
        self.reported: list[Query] = []
        """The query of each notification, in order."""
        self._ended: list[list[SubscriberNotification | SubscribeFailed]] = []
        self._everything = self.engine.subscribe(_request(EVERYTHING), lambda _: None, None, NOW).spuid

    def update(self, operations: Sequence[str] | str, prefix: str = "") -> bool:
        """Run a request on both engines. Return False if both refused it."""
        operations = [operations] if isinstance(operations, str) else operations
        text = prefix + " ;\n".join(operations)
        quads, graphs = self._quads(), self._graphs()
        try:
            self.naive.request(operations, prefix)
            refused = None
        except Refused as error:
            refused = error
        if refused:
            with pytest.raises(EdgeError):
                self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
            self._check_unchanged(quads, graphs)
            return False
        executed = self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
        assert not any(each.received for each in self.watched.values()), "notified before it was published"
        self.engine.undo(executed + self.engine.execute([self.engine.prepare(UpdateRequest("DROP ALL"))], NOW))
        self._check_unchanged(quads, graphs)
        executed = self.engine.execute([self.engine.prepare(UpdateRequest(text))], NOW)
        self.changes.append(executed[0].changes)
        self._check_changes(executed[0].changes, quads, graphs)
        self.engine.show(executed)
        self.engine.publish(executed)
        self._check_graph()
        for each in self.watched.values():
            self._check_delta(each)
        assert not any(self._ended), "notified after it ended"
        return True

    def subscribe(self, query: Query, name: str = "") -> None:
        """Subscribe if the query is valid."""
        try:
            names, expected = self.naive.evaluate(query)
            legal = True
        except SyntaxError:
            legal = False
        received: list[SubscriberNotification | SubscribeFailed] = []
        if not legal:
            with pytest.raises(EdgeError):
                self.engine.subscribe(_request(query), received.append, None, NOW)
            return
        subscription = self.engine.subscribe(_request(query), received.append, None, NOW)
        (first,) = received
        assert isinstance(first, SubscriberNotification)
        assert first.sequence == 0
        assert first.delta.removed == ()
        order = first.delta.variables
        assert order == names or ("*" in query.text and sorted(order) == sorted(names))
        received.clear()
        each = Watched(
            query,
            subscription.spuid,
            order,
            received,
            Counter(first.delta.added),
            settled(order, _reordered(names, order, expected)),
            self._groups(query, order),
        )
        self.watched[name or f"subscription {len(self.watched)}"] = each
        self._compare(each)

    def unsubscribe(self, name: str) -> None:
        """End the subscription of this name, if there is one. It gets no further notifications."""
        each = self.watched.pop(name, None)
        if each is not None:
            self.engine.unsubscribe(each.spuid)
            self._ended.append(each.received)

    def check_query(self, query: Query) -> None:
        """Compare the one-shot result of a query."""
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
        expected = settled(order, _reordered(names, order, expected))
        self._compare(Watched(query, "", order, [], bag, expected, self._groups(query, order)))

    def check_restored(self) -> None:
        """Check that the change sets alone lead to the same graph."""
        engine = new_engine()
        engine.restore(self.changes)
        assert set(engine.graph.quads()) == self._quads()
        assert set(engine.graph.named_graphs()) == self._graphs()
        assert len(engine.graph) == len(self.engine.graph)

    def check_no_leak(self) -> None:
        """Check that the dictionary is empty after all graphs are dropped and all subscriptions ended."""
        for name in list(self.watched):
            self.unsubscribe(name)
        self.engine.unsubscribe(self._everything)
        run(self.engine, "DROP ALL")
        assert (self.engine.spus.subscriptions, self.engine.spus.spus) == (0, 0)
        assert len(self.engine.graph.dictionary) == 1

    def _quads(self) -> set[ox.Quad]:
        return set(self.engine.graph.quads())

    def _graphs(self) -> set[ox.NamedNode | ox.BlankNode]:
        return set(self.engine.graph.named_graphs())

    def _check_unchanged(self, quads: set[ox.Quad], graphs: set[ox.NamedNode | ox.BlankNode]) -> None:
        assert self._quads() == quads
        assert self._graphs() == graphs
        assert not any(each.received for each in self.watched.values())
        self._check_mirrors()
        for each in self.watched.values():
            assert current(self.engine, each.query)[1] == each.bag, each.query

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

    def _groups(self, query: Query, variables: Sequence[str]) -> Groups | None:
        """A group that is re-evaluated as a whole may be reported in another order without a change."""
        moved = bool(query.inputs) and isinstance(self._plans.find(_request(query)), PlanMember)
        return Groups.of(self.naive, query, variables) if moved else None

    def _check_delta(self, each: Watched) -> None:
        names, new = self.naive.evaluate(each.query)
        new = settled(each.variables, _reordered(names, each.variables, new))
        groups = self._groups(each.query, each.variables)
        notifications = list(each.received)
        each.received.clear()
        if each.is_free:
            assert (new != each.expected) <= len(notifications) <= 1 or not each.counts, each.query
        elif not each.makes_blank_nodes:
            assert len(notifications) == (new != each.expected), each.query
        for notification in notifications:
            assert isinstance(notification, SubscriberNotification)
            assert notification.spuid == each.spuid
            assert notification.sequence == each.sequence
            each.sequence += 1
            self.reported.append(each.query)
            added, removed = Counter(notification.delta.added), Counter(notification.delta.removed)
            assert added or removed, each.query
            assert not added & removed, each.query
            assert not removed - each.bag, each.query
            if not each.makes_blank_nodes and each.counts:
                gained, lost = settled(each.variables, added), settled(each.variables, removed)
                assert gained - lost == new - each.expected, each.query
                assert lost - gained == each.expected - new, each.query
            if groups is not None and each.groups is not None:
                for row in added + removed:
                    key = groups.key(row)
                    assert groups.members.get(key) != each.groups.members.get(key), f"group as it was: {each.query}"
            each.bag = each.bag - removed + added
        each.expected = new
        each.groups = groups
        self._compare(each)

    def _compare(self, each: Watched) -> None:
        bag = settled(each.variables, each.bag)
        if each.makes_blank_nodes:
            known = blank_nodes(self._quads())
            assert canonical_triples(bag, known) == canonical_triples(each.expected, known), each.query
        elif each.counts:
            assert bag == each.expected, each.query
        else:
            assert set(bag) == set(each.expected), each.query
        if each.groups is not None:
            for row in each.bag:
                for column in open_columns(each.variables, ("any",)):
                    assert each.groups.admits(row, column), each.query


def _unless_default(name: object) -> object:
    return None if isinstance(name, ox.DefaultGraph) else name
