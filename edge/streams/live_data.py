"""Live data in continuous queries: copies of the triples of the live graph that a query can match.

Windows are in an engine of their own. For each triple pattern of a query outside its windows, a subscription on the
live graph keeps a copy of the matching triples there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Final, NamedTuple, Protocol

import pyoxigraph as ox

from edge.protocol.access import Access
from edge.protocol.bag import Bag
from edge.protocol.errors import InvalidRequest
from edge.protocol.results import Row
from edge.sparql import algebra
from edge.sparql.algebra import Query
from edge.sparql.query import read_query
from edge.sparql.terms import Iri
from edge.streams.language import BASE
from edge.streams.model import ContinuousQuery, Language
from edge.streams.window_graph import GRAPHS

Readers = frozenset[str] | None
"""Graphs that clients may read; None: all."""

_VARIABLES: Final = ("?s", "?p", "?o")


class Pattern(NamedTuple):
    """A triple pattern of a query on the live graph, with variables named by their position."""

    subject: str
    predicate: str
    object: str
    graph: str | None
    """IRI of the graph; None: the default graph."""

    @property
    def sparql(self) -> str:
        """Query for all its triples."""
        triple = f"{self.subject} {self.predicate} {self.object}"
        where = triple if self.graph is None else f"GRAPH <{self.graph}> {{ {triple} }}"
        slots = (self.subject, self.predicate, self.object)
        chosen = [slot if slot == name else f"({slot} AS {name})" for slot, name in zip(slots, _VARIABLES, strict=True)]
        return f"SELECT {' '.join(chosen)} WHERE {{ {where} }}"


class LiveGraph(Protocol):
    """The live graph of the gateway."""

    def follow(
        self,
        sparql: str,
        access: Access,
        changed: Callable[[Sequence[Row], Sequence[Row]], None],
        failed: Callable[[str], None],
    ) -> tuple[Sequence[Row], Callable[[], None]]:
        """Subscribe. Returns the first rows, and a function that ends the subscription.

        `changed` gets added and removed rows later, `failed` the reason if the subscription fails: then no changes
        follow. Both are called on the thread of the processor. Raises `EdgeError`.
        """


Place = tuple[ox.Triple, ox.NamedNode]
"""A triple in a graph."""


@dataclass(slots=True)
class _Copied:
    """The copy of one pattern."""

    readers: Readers
    graph: ox.NamedNode | ox.DefaultGraph
    users: int = 0
    end: Callable[[], None] = lambda: None
    rows: Bag[Row] = field(default_factory=Bag)
    failure: str = ""
    """Why it does not change any more; empty if it does."""


Change = Callable[[Readers, Sequence[ox.Quad], Sequence[ox.Quad]], None]
"""Adds and removes quads for clients that may read some graphs."""


class LiveData:
    """The copies of all queries."""

    def __init__(self, live: LiveGraph, change: Change) -> None:
        self._live = live
        self._change = change
        self._copies: dict[tuple[Readers, Pattern], _Copied] = {}
        self._counts: dict[tuple[Readers, ox.Quad], int] = {}

    def add(self, patterns: Iterable[Pattern], access: Access) -> None:
        """Copy the triples of patterns. Raises `EdgeError`; then nothing has changed."""
        done: list[Pattern] = []
        try:
            for pattern in patterns:
                self._add(pattern, access)
                done.append(pattern)
        except BaseException:
            self.remove(done, access)
            raise

    def remove(self, patterns: Iterable[Pattern], access: Access) -> None:
        """Undo `add`."""
        for pattern in patterns:
            key = (access.read, pattern)
            copied = self._copies[key]
            copied.users -= 1
            if not copied.users:
                del self._copies[key]
                copied.end()
                self._apply(copied, (), [row for row, count in copied.rows.items() for _ in range(count)])

    def _add(self, pattern: Pattern, access: Access) -> None:
        key = (access.read, pattern)
        copied = self._copies.get(key)
        if copied is None:
            graph = ox.DefaultGraph() if pattern.graph is None else ox.NamedNode(pattern.graph)
            copied = _Copied(access.read, graph)
            rows = self._follow(pattern, access, copied)
            self._copies[key] = copied
            self._apply(copied, rows, ())
        elif copied.failure:
            change = Bag.of(self._follow(pattern, access, copied)).since(copied.rows)
            copied.failure = ""
            self._apply(copied, change.added, change.removed)
        copied.users += 1

    def _follow(self, pattern: Pattern, access: Access, copied: _Copied) -> Sequence[Row]:
        key = (access.read, pattern)

        def failed(reason: str) -> None:
            if self._copies.get(key) is copied:
                copied.failure = reason

        rows, copied.end = self._live.follow(pattern.sparql, access, self._changed(key, copied), failed)
        return rows

    def failures(self, patterns: Iterable[Pattern], access: Access) -> list[str]:
        """Return the patterns of a query whose copies do not change any more, with the reasons."""
        found = ((pattern, self._copies.get((access.read, pattern))) for pattern in patterns)
        return [f"{pattern.sparql}: {copied.failure}" for pattern, copied in found if copied and copied.failure]

    def _changed(self, key: tuple[Readers, Pattern], copied: _Copied) -> Callable[[Sequence[Row], Sequence[Row]], None]:
        def changed(added: Sequence[Row], removed: Sequence[Row]) -> None:
            # The last changes of a pattern can arrive after it was removed.
            if self._copies.get(key) is copied:
                self._apply(copied, added, removed)

        return changed

    def _apply(self, copied: _Copied, added: Sequence[Row], removed: Sequence[Row]) -> None:
        """Several patterns can match one triple: it is in the graph as long as any of them does."""
        counts, before = self._counts, dict[tuple[Readers, ox.Quad], int]()
        for rows, step in ((added, 1), (removed, -1)):
            for row in rows:
                copied.rows.add(row, step)
                subject, predicate, object_ = row
                quad = ox.Quad(subject, predicate, object_, copied.graph)  # type: ignore[arg-type]  # of the live graph
                key = (copied.readers, quad)
                before.setdefault(key, counts.get(key, 0))
                counts[key] = counts.get(key, 0) + step
        entering = [key[1] for key, count in before.items() if not count and counts[key]]
        leaving = [key[1] for key, count in before.items() if count and not counts[key]]
        for key in before:
            if not counts[key]:
                del counts[key]
        if entering or leaving:
            self._change(copied.readers, entering, leaving)


def live_patterns(query: ContinuousQuery) -> tuple[Pattern, ...]:
    """Return the patterns of a query on the live graph. Raises `ParsingFailed`, `InvalidRequest`."""
    parsed = read_query(query.sparql, BASE)
    windows = {window.name for window in query.windows}
    _check_graphs(query, parsed, windows)
    found: dict[Pattern, None] = {}
    for subject, predicate, object_, graph in triples_of(parsed):
        if isinstance(graph, algebra.Variable):
            graphs: tuple[str | None, ...] = query.named_graphs or ()
        elif graph is None:
            graphs = (None,) if reads_live_default(query) else query.default_graphs or ()
        else:
            iri = graph.value if isinstance(graph, Iri) else str(graph)
            graphs = () if iri in windows else (iri,)
            if graphs and is_limited(query) and iri not in (query.named_graphs or ()):
                raise InvalidRequest(f"The graph <{iri}> is not in the dataset of the query; add FROM NAMED <{iri}>")
        for name in graphs:
            pattern = Pattern(_slot(subject, 0), _slot(predicate, 1), _slot(object_, 2), name)
            found[pattern] = None
    return tuple(found)


def is_limited(query: ContinuousQuery) -> bool:
    """Return whether a query names its graphs, so that other named graphs take no part.

    In C-SPARQL, FROM STREAM is a dataset clause (SPARQL 1.1 Query, section 13.2).
    """
    return query.default_graphs is not None or query.language == Language.CSPARQL


def reads_live_default(query: ContinuousQuery) -> bool:
    """Return whether the default graph of a query is that of the live graph: no FROM and no window says otherwise."""
    return query.default_graphs is None and all(window.name for window in query.windows)


def _check_graphs(query: ContinuousQuery, parsed: Query, windows: set[str]) -> None:
    """Raise `InvalidRequest` if a query could read the windows of others: they are graphs of the same engine."""
    named = [*(query.default_graphs or ()), *(query.named_graphs or ())]
    for node in nodes_of(parsed.pattern):
        if isinstance(node, algebra.GraphPattern):
            if isinstance(node.name, Iri):
                named.append(node.name.value)
            elif isinstance(node.name, algebra.Variable) and not is_limited(query):
                raise InvalidRequest(
                    f"GRAPH ?{node.name.name} would range over all graphs of the gateway; name them with FROM NAMED"
                )
    for iri in named:
        if iri.startswith(GRAPHS) and iri not in windows:
            raise InvalidRequest(f"Names such as <{iri}> are reserved for windows; use another graph")


_Slots = tuple[object, object, object, object]


def triples_of(query: Query) -> Iterator[_Slots]:
    """Yield subject, predicate, object and graph of all triples that a query can read."""
    for resource in query.resources:
        yield resource, algebra.Variable("p"), algebra.Variable("o"), None
    yield from _of(query.pattern)


def _of(node: object) -> Iterator[_Slots]:
    for each in nodes_of(node):
        if isinstance(each, algebra.Triple):
            yield each.subject, each.predicate, each.object, each.graph
        elif isinstance(each, algebra.Path):
            for predicate in _predicates(each.path):
                yield algebra.Variable("s"), predicate, algebra.Variable("o"), each.graph


def nodes_of(node: object) -> Iterator[object]:
    """Yield a node of a query, and all nodes below it, also those in expressions."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, tuple | list):
            waiting.extend(node)
        elif is_dataclass(node) and not isinstance(node, type):
            waiting.extend(getattr(node, each.name) for each in fields(node))


def _predicates(path: object) -> Iterator[object]:
    """Yield the predicates of a path; a variable if it can follow any."""
    if isinstance(path, algebra.Negated) or (isinstance(path, algebra.Repeat) and path.least == 0):
        yield algebra.Variable("p")  # a path of length zero matches every term of the graph
    elif isinstance(path, algebra.PathLink):
        yield path.predicate
    elif is_dataclass(path) and not isinstance(path, type):
        for each in fields(path):
            inner = getattr(path, each.name)
            for one in inner if isinstance(inner, tuple) else (inner,):
                yield from _predicates(one)


def _slot(slot: object, place: int) -> str:
    if isinstance(slot, algebra.Variable | algebra.Blank | algebra.Fresh):
        return _VARIABLES[place]
    return str(slot)
