"""The naive engine, a test oracle: Oxigraph executes each update, re-evaluates each subscription and compares.

It shares no code with the engine. If the two disagree, one of them is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyoxigraph as ox

BASE = "http://localhost/"
EX = "http://example.org/"

Bag = Counter[tuple[object, ...]]
_TRANSFER = re.compile(r"(?:ADD|COPY|MOVE) (?:GRAPH )?(\w+:\w+|<\S*>) TO ")
_FROM = re.compile(r"\b(?:FROM|USING)(?:\s|#[^\n]*\n)+(?:ex:(\w+)|<([^>]*)>)", re.IGNORECASE)
"""A clause that adds a graph to the default graph."""


class Refused(Exception):
    """The naive engine could not execute an update."""


@dataclass(frozen=True)
class Query:
    """A query with its protocol dataset."""

    text: str
    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None
    readable: frozenset[str] | None = None
    """The graphs that the client may read; None: all."""
    inputs: str = ""
    """A query of the inputs of each aggregate of this one: the same columns without grouping.

    Empty if they do not matter.
    """


@dataclass
class NaiveEngine:
    """A store, and the last result of each watched query."""

    store: ox.Store = field(default_factory=ox.Store)

    def update(self, text: str) -> None:
        """Run an update, all or nothing."""
        try:
            self.store.update(text, base_iri=BASE)
        except (SyntaxError, ValueError, RuntimeError, OSError) as error:
            raise Refused(str(error)) from None

    def request(self, operations: Iterable[str], prefix: str) -> None:
        """Run the operations of one request, all or nothing."""
        self.update(prefix + " ; ".join(map(_as_naive, operations)))

    def evaluate(self, query: Query) -> tuple[tuple[str, ...], Bag]:
        """Return the columns of a query and its rows, in the tabular form that the engine gives each query form."""
        strict = query.default_graphs is not None or query.named_graphs is not None
        store = self.store if query.readable is None else _visible(self.store, query.readable)
        result = store.query(
            _without_repeated(query.text),
            base_iri=BASE,
            default_graph=[ox.NamedNode(iri) for iri in query.default_graphs or ()] if strict else None,
            named_graphs=[ox.NamedNode(iri) for iri in query.named_graphs or ()] if strict else None,
        )
        if isinstance(result, ox.QueryBoolean):
            return ("boolean",), Counter([(ox.Literal(bool(result)),)])
        if isinstance(result, ox.QueryTriples):
            return ("subject", "predicate", "object"), Counter({tuple(triple): 1 for triple in as_stored(result)})
        return tuple(variable.value for variable in result.variables), Counter(tuple(row) for row in result)

    def replace(self, quads: Iterable[ox.Quad], graphs: Iterable[ox.NamedNode | ox.BlankNode]) -> None:
        """Take over the content of another store, so that its blank nodes have the same names here."""
        self.store = ox.Store()
        self.store.extend(quads)
        for graph in graphs:
            self.store.add_graph(graph)


def _visible(store: ox.Store, readable: frozenset[str]) -> ox.Store:
    """Return the part of a store that a client may read. The named graphs of its dataset exist, if only empty."""
    part = ox.Store()
    part.extend(quad for quad in store if _name(quad.graph_name) in readable)
    for graph in readable - {""}:
        part.add_graph(ox.NamedNode(graph))
    return part


def _name(graph: ox.NamedNode | ox.BlankNode | ox.DefaultGraph) -> str:
    return "" if isinstance(graph, ox.DefaultGraph) else graph.value


def _without_repeated(text: str) -> str:
    """Return a query or an operation that names no graph twice in FROM or USING.

    Oxigraph counts the solutions of such a graph more than once; it is in the dataset once (13.2).
    """
    named: set[str] = set()

    def once(clause: re.Match[str]) -> str:
        short, iri = clause.groups()
        graph = iri or EX + short
        if graph in named:
            return ""
        named.add(graph)
        return clause.group()

    return _FROM.sub(once, text)


def as_stored(triples: Iterable[ox.Triple]) -> list[ox.Triple]:
    """Return triples with literals in the form of a store: Oxigraph does not normalize those of CONSTRUCT templates.

    The engine has one form for each literal, whatever its origin.
    """
    store = ox.Store()
    store.extend(ox.Quad(*triple) for triple in triples)
    return [quad.triple for quad in store]


def canonical(quads: Iterable[ox.Quad]) -> frozenset[ox.Quad]:
    """Return the quads with blank nodes named by structure: equal for isomorphic datasets."""
    dataset = ox.Dataset(quads)
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return frozenset(dataset)


def canonical_triples(rows: Iterable[tuple[object, ...]], known: frozenset[ox.BlankNode]) -> frozenset[ox.Quad]:
    """Return the triples of a CONSTRUCT up to the names of its new blank nodes. Those in `known` keep their names."""

    def pinned(term: object) -> object:
        return ox.NamedNode(f"urn:blank:{term.value}") if isinstance(term, ox.BlankNode) and term in known else term

    return canonical(ox.Quad(*(pinned(term) for term in row)) for row in rows)  # type: ignore[arg-type]


def blank_nodes(quads: Iterable[ox.Quad]) -> frozenset[ox.BlankNode]:
    """Return all blank nodes of a dataset."""
    return frozenset(
        term
        for quad in quads
        for term in (quad.subject, quad.object, quad.graph_name)
        if isinstance(term, ox.BlankNode)
    )


def named_graphs(names: Iterable[ox.NamedNode | ox.BlankNode]) -> tuple[frozenset[ox.NamedNode], int]:
    """Return the named graphs, and how many graphs have a blank node as name."""
    names = list(names)
    iris = frozenset(name for name in names if isinstance(name, ox.NamedNode))
    return iris, len(names) - len(iris)


def _as_naive(operation: str) -> str:
    """Adapt an operation to Oxigraph, which accepts ADD and COPY without a source and MOVE to the source itself.

    See also `_without_repeated`.
    """
    match = _TRANSFER.match(operation)
    if match is None:
        return _without_repeated(operation)
    source, spare = match[1], "<urn:spare>"
    return f"MOVE {source} TO {spare} ; MOVE SILENT {spare} TO {source} ; CREATE SILENT GRAPH {source} ; {operation}"
