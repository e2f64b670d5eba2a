"""The naive engine: every update by Oxigraph itself, every subscription evaluated anew and compared. A test oracle.

It shares no code with the engine. Where it and the engine disagree, one of them is wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyoxigraph as ox

BASE = "http://localhost/"

Bag = Counter[tuple[object, ...]]
_TRANSFER = re.compile(r"(?:ADD|COPY|MOVE) (?:GRAPH )?(\w+:\w+|<\S*>) TO ")


class Refused(Exception):
    """The naive engine could not carry an update out."""


@dataclass(frozen=True)
class Query:
    """A query with its protocol dataset."""

    text: str
    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None
    inputs: str = ""
    """A query of what each aggregate of this one is made of: the same columns without grouping. Empty: no matter."""


@dataclass
class NaiveEngine:
    """A store, and what each watched query gave last."""

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
        """The columns of a query and its rows, as the engine tabulates every query form."""
        strict = query.default_graphs is not None or query.named_graphs is not None
        result = self.store.query(
            query.text,
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
        """Take over another store's content, so that its blank nodes have the same names here."""
        self.store = ox.Store()
        self.store.extend(quads)
        for graph in graphs:
            self.store.add_graph(graph)


def as_stored(triples: Iterable[ox.Triple]) -> list[ox.Triple]:
    """Triples with their literals as a store gives them back: Oxigraph leaves those of CONSTRUCT templates as written.

    The engine has one form for each literal, wherever it comes from.
    """
    store = ox.Store()
    store.extend(ox.Quad(*triple) for triple in triples)
    return [quad.triple for quad in store]


def canonical(quads: Iterable[ox.Quad]) -> frozenset[ox.Quad]:
    """The quads with their blank nodes named by structure: equal for isomorphic data sets."""
    dataset = ox.Dataset(quads)
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return frozenset(dataset)


def canonical_triples(rows: Iterable[tuple[object, ...]], known: frozenset[ox.BlankNode]) -> frozenset[ox.Quad]:
    """A CONSTRUCT's triples up to the names of the blank nodes that it made. Those in `known` keep theirs."""

    def pinned(term: object) -> object:
        return ox.NamedNode(f"urn:blank:{term.value}") if isinstance(term, ox.BlankNode) and term in known else term

    return canonical(ox.Quad(*(pinned(term) for term in row)) for row in rows)  # type: ignore[arg-type]


def blank_nodes(quads: Iterable[ox.Quad]) -> frozenset[ox.BlankNode]:
    """Every blank node of a data set."""
    return frozenset(
        term
        for quad in quads
        for term in (quad.subject, quad.object, quad.graph_name)
        if isinstance(term, ox.BlankNode)
    )


def named_graphs(names: Iterable[ox.NamedNode | ox.BlankNode]) -> tuple[frozenset[ox.NamedNode], int]:
    """Names of named graphs, and how many have a blank node for a name."""
    names = list(names)
    iris = frozenset(name for name in names if isinstance(name, ox.NamedNode))
    return iris, len(names) - len(iris)


def _as_naive(operation: str) -> str:
    """An operation for Oxigraph, to which it is no error that ADD and COPY have no source, nor MOVE onto itself."""
    match = _TRANSFER.match(operation)
    if match is None:
        return operation
    source, spare = match[1], "<urn:spare>"
    return f"MOVE {source} TO {spare} ; MOVE SILENT {spare} TO {source} ; CREATE SILENT GRAPH {source} ; {operation}"
