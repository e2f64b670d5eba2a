"""What a query depends on: the triple patterns in it, wherever they stand, as watches for the LUTT.

The algebra is rdflib's, which takes its time and 16 MB: this module is imported when there is such a query. What
rdflib cannot read, though it is legal, is taken to depend on everything: it is then evaluated more often than need be,
and never wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyoxigraph as ox
import rdflib
from rdflib.paths import AlternativePath, InvPath, MulPath, NegatedPath, Path, SequencePath
from rdflib.plugins.sparql.algebra import translateQuery
from rdflib.plugins.sparql.parser import parseQuery
from rdflib.plugins.sparql.parserutils import CompValue

from edge.engine.analysis_source import QuerySource
from edge.engine.lutt import EVERYTHING, Dependencies, Watch
from edge.protocol.results import Term

rdflib.NORMALIZE_LITERALS = False  # lexical forms are the engine's business
logging.getLogger("rdflib.term").setLevel(logging.ERROR)  # it warns of every ill-typed literal that a query holds


def dependencies(text: str, base_iri: str, default_graphs: Sequence[str] | None, *, union: bool) -> Dependencies:
    """The dependencies of a query whose legality is settled.

    `default_graphs` are the IRIs that make up its default graph; None: the store's own, or with `union` all graphs.
    """
    try:
        source = QuerySource(text, base_iri)
        walker = _Walker(source, default_graphs, union=union)
        watches: dict[Watch, None] = {}
        for part in source.parts():
            watches.update(dict.fromkeys(walker.walk(translateQuery(parseQuery(part)).algebra, None)))
    except Exception:  # noqa: BLE001  rdflib raises whatever it stumbles over; the answer is then "everything"
        return EVERYTHING
    return Dependencies(tuple(watches), walker.graph_names)


class _Walker:
    def __init__(self, source: QuerySource, default_graphs: Sequence[str] | None, *, union: bool) -> None:
        self._term = source.term
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
            for value in node.values():
                yield from self.walk(value, graph)
        elif isinstance(node, list | tuple | set):
            for item in node:
                yield from self.walk(item, graph)

    def _pattern(self, triple: tuple[object, object, object], graph: object) -> Iterator[Watch]:
        subject, predicate, object_ = triple
        for where in self._graphs(graph):
            if isinstance(predicate, Path):
                yield from self._path(self._term(subject), predicate, self._term(object_), where)
            else:
                yield replace(
                    where, subject=self._term(subject), predicate=self._term(predicate), object=self._term(object_)
                )

    def _path(self, subject: Term | None, path: Path, object_: Term | None, where: Watch) -> Iterator[Watch]:
        """Whatever a path can walk. One of length zero begins and ends at a node, if the graph has that node at all."""
        for step in self._steps(path):
            yield replace(where, predicate=step)
        if not _may_be_empty(path):
            return
        if subject is None and object_ is None:
            yield where
        for end in (subject, object_):
            if end is not None:
                yield replace(where, subject=end)
                yield replace(where, object=end)

    def _steps(self, path: object) -> Iterator[Term | None]:
        """The predicates that a path can walk; None: any."""
        if isinstance(path, NegatedPath):
            yield None
        elif isinstance(path, MulPath):
            yield from self._steps(path.path)
        elif isinstance(path, InvPath):
            yield from self._steps(path.arg)
        elif isinstance(path, AlternativePath | SequencePath):
            for arg in path.args:
                if isinstance(path, SequencePath) and _may_be_empty(arg):
                    yield None  # its ends may be nodes that no pattern names
                yield from self._steps(arg)
        else:
            yield self._term(path)

    def _graphs(self, graph: object) -> list[Watch]:
        return self._default if graph is None else [Watch(graph=self._term(graph))]


def _may_be_empty(path: object) -> bool:
    """Whether a part of the path can have length zero."""
    if isinstance(path, MulPath):
        return bool(path.zero) or _may_be_empty(path.path)
    if isinstance(path, InvPath):
        return _may_be_empty(path.arg)
    return isinstance(path, AlternativePath | SequencePath) and any(map(_may_be_empty, path.args))
