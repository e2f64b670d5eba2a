"""What a query depends on: the triple patterns in it, wherever they stand, as watches for the LUTT.

The algebra is rdflib's, which takes its time and 16 MB: this module is imported when there is such a query. What
rdflib cannot read, though it is legal, is taken to depend on everything: it is then evaluated more often than need be,
and never wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyoxigraph as ox
import rdflib
from rdflib.paths import AlternativePath, InvPath, MulPath, NegatedPath, Path, SequencePath
from rdflib.plugins.sparql.algebra import translateQuery
from rdflib.plugins.sparql.parser import parseQuery
from rdflib.plugins.sparql.parserutils import CompValue

from edge.engine.lutt import EVERYTHING, Dependencies, Watch
from edge.protocol.results import Term

rdflib.NORMALIZE_LITERALS = False  # lexical forms are the engine's business
logging.getLogger("rdflib.term").setLevel(logging.ERROR)  # it warns of every ill-typed literal that a query holds


def dependencies(text: str, base_iri: str, default_graphs: Sequence[str] | None, *, union: bool) -> Dependencies:
    """The dependencies of a query whose legality is settled.

    `default_graphs` are the IRIs that make up its default graph; None: the store's own, or with `union` all graphs.
    """
    try:
        query = translateQuery(parseQuery(text), base=base_iri)
        walker = _Walker(default_graphs, union=union)
        watches = tuple(dict.fromkeys(walker.walk(query.algebra, None)))
    except Exception:  # noqa: BLE001  rdflib raises whatever it stumbles over; the answer is then "everything"
        return EVERYTHING
    return Dependencies(watches, walker.graph_names)


class _Walker:
    def __init__(self, default_graphs: Sequence[str] | None, *, union: bool) -> None:
        self.graph_names = False
        if default_graphs is None:
            self._default = [Watch(default_graph=not union)]
        else:
            self._default = [Watch(graph=ox.NamedNode(iri)) for iri in default_graphs]

    def walk(self, node: object, graph: object) -> Iterator[Watch]:
        """Every pattern below an algebra node; `graph` is the term of the GRAPH clause around it, or None."""
        if isinstance(node, CompValue):
            if node.name == "Graph":
                self.graph_names = True
                yield from self.walk(node.p, node.term)
                return
            if node.name == "BGP":
                for triple in node.triples:
                    yield from self._pattern(triple, graph)
                return
            if node.name == "ServiceGraphPattern":
                return
            if node.name == "GroupGraphPatternSub":  # an EXISTS that rdflib has left untranslated
                raise NotImplementedError(node.name)
            for value in node.values():
                yield from self.walk(value, graph)
        elif isinstance(node, list | tuple | set):
            for item in node:
                yield from self.walk(item, graph)

    def _pattern(self, triple: tuple[object, object, object], graph: object) -> Iterator[Watch]:
        subject, predicate, object_ = triple
        for where in self._graphs(graph):
            if isinstance(predicate, Path):
                for step in _steps(predicate, _term(subject) is None and _term(object_) is None):
                    yield Watch(None, step, None, where.graph, where.default_graph)
            else:
                yield Watch(_term(subject), _term(predicate), _term(object_), where.graph, where.default_graph)

    def _graphs(self, graph: object) -> list[Watch]:
        return self._default if graph is None else [Watch(graph=_term(graph))]


def _steps(path: object, open_ended: bool) -> Iterator[Term | None]:
    """The predicates that a path can walk; None: any. A path of length zero holds for every node there is."""
    if isinstance(path, NegatedPath):
        yield None
    elif isinstance(path, MulPath):
        if path.zero and open_ended:
            yield None
        yield from _steps(path.path, open_ended)
    elif isinstance(path, InvPath):
        yield from _steps(path.arg, open_ended)
    elif isinstance(path, AlternativePath | SequencePath):
        for arg in path.args:
            # Within a sequence an end may be a node that no pattern names.
            yield from _steps(arg, open_ended or isinstance(path, SequencePath))
    else:
        yield _term(path)


def _term(node: object) -> Term | None:
    """A constant of the algebra as the engine's term; None for variables and blank nodes."""
    if isinstance(node, rdflib.URIRef):
        return ox.NamedNode(str(node))
    if isinstance(node, rdflib.Literal):
        if node.language:
            return ox.Literal(str(node), language=node.language)
        datatype = ox.NamedNode(str(node.datatype)) if node.datatype else None
        return ox.Literal(str(node), datatype=datatype)
    return None
