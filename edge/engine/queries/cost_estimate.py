"""Upper bound of the work of a query, from the counts of the live graph.

Oxigraph cannot be interrupted while it searches for the next solution, so the engine must know in advance whether a
query is cheap. The bound counts the solutions that Oxigraph may hold or visit at any point, for every join order: the
join starts with any pattern, and each further pattern multiplies the count by the largest number of its matches. The
bound is loose, but a small bound guarantees little work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge.engine.operators.variables import Names, certain, nodes, own_expressions
from edge.engine.queries.text_cost import Texts
from edge.engine.requests import Dataset
from edge.engine.sparql.parser import parse_query
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.terms import canonical
from edge.engine.store.triple_index import SOME, TripleIndex
from edge.protocol.errors import ParsingFailed
from edge.sparql.algebra import (
    Alternative,
    Blank,
    Call,
    Distinct,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphPattern,
    Group,
    Inverse,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Parameter,
    Path,
    PathExpression,
    PathLink,
    Project,
    Query,
    Repeat,
    Slice,
    Slot,
    Triple,
    Union,
    Values,
    Variable,
)
from edge.sparql.algebra import (
    Sequence as Steps,
)
from edge.sparql.tokens import Token

SURE: Final = 2_000_000
"""Limit of a cheap query: solutions times (words of the query + work on texts). At most 0.5 s and about 50 MB."""

# Beyond any of these the bound would take too long to compute, and counts as infinite.
_MANY: Final = 8
"""Patterns that are joined in one group."""
_GRAPHS: Final = 64
"""Named graphs."""
_WORDS: Final = 1000
"""Words of a query."""
_LOOKS: Final = 500
"""Visits of parts of a query. Nested parts are visited many times."""

_NONE: Final[Names] = frozenset()
_HUGE: Final = math.inf


@dataclass(frozen=True, slots=True)
class Outline:
    """The properties of a query that determine its cost."""

    query: Query | None
    """None if the work has no bound."""
    words: int
    """Length of the query in words."""
    texts: Texts


def outline(text: str, tokens: Sequence[Token], base_iri: str) -> Outline:
    """Return the outline of a legal query. A query of more than 1000 words is not parsed, and has no bound."""
    if len(tokens) > _WORDS:
        return Outline(None, len(tokens), Texts(len(text), ()))
    try:
        query = parse_query(text, tokens, base_iri)
    except ParsingFailed:  # Oxigraph accepts it, but our grammar does not
        return Outline(None, len(tokens), Texts(len(text), ()))
    return Outline(query, len(tokens), Texts(len(text), nodes(query.pattern)))


def is_small(outlined: Outline, graph: LiveGraph, dataset: Dataset, *, whole: bool = False) -> bool:
    """Return whether a query certainly finishes soon on the current graph. May run on any thread.

    `whole`: the query's default graph is not the store's, although neither the query nor the dataset says so.
    """
    try:
        each = outlined.words + outlined.texts.work(graph.dictionary.longest)
        return most(outlined, graph, dataset, whole=whole) * each <= SURE
    except RuntimeError:  # another thread changed a dictionary during the iteration
        return False


def most(outlined: Outline, graph: LiveGraph, dataset: Dataset, *, whole: bool = False) -> float:
    """Return an upper bound of the solutions at any point of the evaluation and of the triples; infinite if unknown."""
    query = outlined.query
    if query is None or outlined.words > _WORDS:
        return _HUGE
    whole = whole or dataset.given or dataset.readable is not None or query.default_graphs is not None
    try:
        peak = _Bounds(graph, whole=whole).peak(query.pattern, _NONE)
    except _TooManyLooksError:
        return _HUGE
    return peak if query.form != "DESCRIBE" else (peak + len(query.resources)) * max(1, len(graph))


class _TooManyLooksError(Exception):
    """The bound of a query takes too long to compute."""


class _Bounds:
    """Upper bounds for the parts of one query."""

    def __init__(self, graph: LiveGraph, *, whole: bool) -> None:
        """`whole`: any pattern may match in any graph."""
        self._graph = graph
        self._whole = whole
        self._looks = 0
        # Keyed by identity: a comparison of parts of a query would take longer than the cached work.
        self._certain: dict[int, Names] = {}
        self._ids: dict[int, int] = {}
        """Term ids of constants."""
        self._matches: dict[tuple[int, Names], float] = {}
        """Largest number of matches of a triple pattern, for a set of bound variables."""

    def peak(self, node: Node, bound: Names) -> float:
        """Return the largest number of solutions while a pattern is evaluated, at least 1. `bound`: bound variables."""
        self._looks += 1
        if self._looks > _LOOKS:
            raise _TooManyLooksError
        match node:
            case Triple() | Path() | Values() | Join():
                most = self._join(node.parts if isinstance(node, Join) else (node,), bound)
            case Union():
                most = sum(self.peak(branch, bound) for branch in node.branches)
            case LeftJoin() | Minus():
                most = self._per_solution(self.peak(node.left, bound), node.right, bound | self._sure(node.left))
            case Filter() | Extend():
                most = self.peak(node.pattern, bound)
            case GraphPattern():
                most = self.peak(node.pattern, bound)
                if isinstance(node.name, Variable | Blank) and node.name not in bound | self._sure(node.pattern):
                    most *= max(1, len(self._graph.graphs))
            case Group() | Project() | Distinct() | OrderBy() | Slice():
                most = self.peak(node.pattern, _NONE)  # a sub-query is evaluated without the outer bindings
            case _:
                return _HUGE
        for expression in own_expressions(node):
            for pattern in _exists(expression):
                most = self._per_solution(most, pattern, bound | self._sure(node))
        return most

    def _per_solution(self, most: float, node: Node, bound: Names) -> float:
        """Bound of a part that Oxigraph looks up for each of `most` solutions, or evaluates once on its own."""
        return max(most * self.peak(node, bound), self.peak(node, _NONE))

    def _join(self, parts: Sequence[Node], bound: Names) -> float:
        """Return the maximum over all patterns that can be joined first. After it, the most selective part follows."""
        if len(parts) > _MANY:
            return _HUGE
        most = 1.0
        for first in range(len(parts)) if len(parts) > 1 else ():
            others = [*parts[:first], *parts[first + 1 :]]
            most = max(most, self._in_turn(parts[first], others, bound))
        return most if len(parts) != 1 else self._alone(parts[0], bound)

    def _in_turn(self, first: Node, others: list[Node], bound: Names) -> float:
        most = self._alone(first, bound)
        known = bound | self._sure(first)
        while others:
            near = [node for node in others if self._sure(node) & known] or others
            factors = [(self._alone(node, known), index) for index, node in enumerate(near)]
            factor, index = min(factors)
            node = near[index]
            if not isinstance(node, Triple | Path | Values):
                factor = max(factor, self.peak(node, _NONE) / most)  # it may be evaluated by itself
            most *= factor
            known |= self._sure(node)
            others.remove(node)
        return most

    def _alone(self, node: Node, bound: Names) -> float:
        """Return the largest number of matches of one part of a join."""
        match node:
            case Triple():
                key = id(node), bound & self._sure(node)
                most = self._matches.get(key)
                if most is None:
                    most = self._matches[key] = self._triple(node, bound)
                return most
            case Path():
                return self._path(node, bound)
            case Values():
                return max(1, len(node.rows))
            case _:
                return self.peak(node, bound)

    def _triple(self, node: Triple, bound: Names) -> float:
        indexes = self._indexes(node.graph)
        if indexes is None:
            return _HUGE
        ids = [self._id(slot, bound) for slot in (node.subject, node.predicate, node.object)]
        return max(1, sum(index.most(*ids) for index in indexes))

    def _path(self, node: Path, bound: Names) -> float:
        """Bound a path. It visits each triple once from each of its start nodes, and returns each end once."""
        indexes = self._indexes(node.graph)
        if indexes is None:
            return _HUGE
        most = self._choices(node.path, indexes)
        path = node.path
        if isinstance(path, Repeat) and all(self._id(slot, bound) is None for slot in (node.subject, node.object)):
            most *= most if path.least else 1 + sum(index.size for index in indexes)
        return max(1, most)

    def _choices(self, path: PathExpression, indexes: Sequence[TripleIndex]) -> float:
        """Count the steps of a path from all start nodes together; if it repeats, from each start node."""
        match path:
            case PathLink():
                predicate = self._id(path.predicate, _NONE)
                return sum(index.most(None, predicate, None) for index in indexes)
            case Inverse():
                return self._choices(path.path, indexes)
            case Steps():
                return math.prod(1 + self._choices(step, indexes) for step in path.steps)
            case Alternative():
                return sum(self._choices(choice, indexes) for choice in path.choices)
            case Repeat():
                once = 1 + self._choices(path.path, indexes)
                return once if isinstance(path.path, PathLink) else once * (1 + sum(index.size for index in indexes))
            case _:
                return sum(index.size for index in indexes)

    def _indexes(self, graph: Slot | None) -> list[TripleIndex] | None:
        """Return the indexes in which a pattern may match; None if there are too many graphs."""
        graphs = self._graph.graphs
        if self._whole or isinstance(graph, Variable | Blank):
            return list(graphs.values()) if len(graphs) <= _GRAPHS else None
        name = DEFAULT_GRAPH if graph is None else self._id(graph, _NONE)
        index = None if name is None else graphs.get(name)
        return [] if index is None else [index]

    def _id(self, slot: Slot, bound: Names) -> int | None:
        if isinstance(slot, Variable | Blank):
            return SOME if slot in bound else None
        known = self._ids.get(id(slot))
        if known is None:
            term = slot.term if isinstance(slot, Parameter) else slot
            found = self._graph.dictionary.find(canonical(term))  # type: ignore[arg-type]  # nothing else stands there
            known = self._ids[id(slot)] = _NOWHERE if found is None else found
        return known

    def _sure(self, node: Node) -> Names:
        """Return the variables that every solution of a part binds."""
        known = self._certain.get(id(node))
        if known is None:
            known = self._certain[id(node)] = certain(node)
        return known


_NOWHERE: Final = -2
"""Placeholder for the id of a term that does not occur in the graph."""


def _exists(expression: Expression) -> list[Node]:
    if isinstance(expression, Exists):
        return [expression.pattern]
    if isinstance(expression, Call):
        return [pattern for argument in expression.arguments for pattern in _exists(argument)]
    return []
