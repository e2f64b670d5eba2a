"""Dependencies of a query: all triple patterns in it, as watches for the LUTT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyoxigraph as ox

from edge.engine.operators.variables import children, own_expressions
from edge.engine.queries.subscription_index import Dependencies, Watch
from edge.protocol.results import Term
from edge.sparql.algebra import (
    Alternative,
    Blank,
    Call,
    Exists,
    Expression,
    Fresh,
    GraphPattern,
    Inverse,
    Negated,
    Node,
    Parameter,
    Path,
    PathExpression,
    PathLink,
    Query,
    Repeat,
    Service,
    Slot,
    Triple,
    Variable,
)
from edge.sparql.algebra import (
    Sequence as PathSequence,
)


def dependencies(query: Query, default_graphs: Sequence[str] | None, *, union: bool) -> Dependencies:
    """Return the dependencies of a query.

    `default_graphs`: IRIs of the graphs that form its default graph. None: the store's own, or with `union` all graphs.
    """
    walker = _Walker(default_graphs, union=union)
    watches = tuple(dict.fromkeys(walker.node(query.pattern)))
    return Dependencies(watches, walker.graph_names)


class _Walker:
    def __init__(self, default_graphs: Sequence[str] | None, *, union: bool) -> None:
        self.graph_names = False
        """Whether the query has a GRAPH clause."""
        if default_graphs is None:
            self._default = [Watch(default_graph=not union)]
        else:
            self._default = [Watch(graph=ox.NamedNode(iri)) for iri in default_graphs]

    def node(self, node: Node) -> Iterator[Watch]:
        """Yield the watches of a pattern."""
        if isinstance(node, Triple):
            subject, predicate, object_ = map(_term, (node.subject, node.predicate, node.object))
            for where in self._graphs(node.graph):
                yield replace(where, subject=subject, predicate=predicate, object=object_)
        elif isinstance(node, Path):
            for where in self._graphs(node.graph):
                yield from _path(_term(node.subject), node.path, _term(node.object), where)
        elif not isinstance(node, Service):  # its data is elsewhere; a local change cannot affect it
            self.graph_names |= isinstance(node, GraphPattern)
            for child in children(node):
                yield from self.node(child)
            for expression in own_expressions(node):
                yield from self._expression(expression)

    def _expression(self, expression: Expression) -> Iterator[Watch]:
        if isinstance(expression, Exists):
            yield from self.node(expression.pattern)
        elif isinstance(expression, Call):
            for argument in expression.arguments:
                yield from self._expression(argument)

    def _graphs(self, graph: Slot | None) -> list[Watch]:
        return self._default if graph is None else [Watch(graph=_term(graph))]


def _term(slot: Slot) -> Term | None:
    """Return a constant; None for variables and blank nodes."""
    if isinstance(slot, Variable | Blank | Fresh):
        return None
    term: Term = slot.term if isinstance(slot, Parameter) else slot
    return term


def _path(subject: Term | None, path: PathExpression, object_: Term | None, where: Watch) -> Iterator[Watch]:
    """Yield the watches of a path. A path of length zero starts and ends at one node, if the graph has that node."""
    for step in _steps(path):
        yield replace(where, predicate=step)
    if not _may_be_empty(path):
        return
    if subject is None and object_ is None:
        yield where
    for end in (subject, object_):
        if end is not None:
            yield replace(where, subject=end)
            yield replace(where, object=end)


def _steps(path: PathExpression) -> Iterator[Term | None]:
    """Yield the predicates of a path; None stands for any predicate."""
    if isinstance(path, PathLink):
        yield _term(path.predicate)
    elif isinstance(path, Negated):
        yield None
    elif isinstance(path, Repeat | Inverse):
        yield from _steps(path.path)
    else:
        for part in _parts(path):
            if not isinstance(path, Alternative) and _may_be_empty(part):
                yield None  # the path can start or end at nodes that no pattern names
            yield from _steps(part)


def _may_be_empty(path: PathExpression) -> bool:
    """Return whether the path can have length zero."""
    if isinstance(path, Repeat):
        return path.least == 0 or _may_be_empty(path.path)
    if isinstance(path, Inverse):
        return _may_be_empty(path.path)
    return not isinstance(path, PathLink | Negated) and any(map(_may_be_empty, _parts(path)))


def _parts(path: Alternative | PathSequence) -> tuple[PathExpression, ...]:
    return path.choices if isinstance(path, Alternative) else path.steps
