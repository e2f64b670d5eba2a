"""How much work a query can be at the most, as far as the counts of the live graph tell.

Oxigraph cannot be stopped while it looks for the next solution. So it must be known before whether that will be soon.
What is counted are solutions that it may hold or go through at some point, whatever the order in which it joins what
shares variables: it begins with any pattern, and each further one multiplies by the most that it can match there. The
bound is loose; where it is small, the work is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge.engine.operators.variables import Names, certain, nodes, own_expressions
from edge.engine.queries.text_cost import Texts
from edge.engine.requests import Dataset
from edge.engine.sparql.algebra import (
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
from edge.engine.sparql.algebra import (
    Sequence as Steps,
)
from edge.engine.sparql.parser import parse_query
from edge.engine.store.graph import DEFAULT_GRAPH, SOME, LiveGraph, TripleIndex
from edge.engine.store.terms import canonical
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import Token

SURE: Final = 2_000_000
"""Solutions, each times the words of the query and its work on texts: no more than half a second and some 50 MB."""

_MANY: Final = 8
"""Patterns that are joined in one group; with more nothing is computed."""
_GRAPHS: Final = 64
"""Named graphs; likewise."""
_WORDS: Final = 1000
"""Words of a query; likewise."""
_LOOKS: Final = 500
"""Looks at parts of a query, which are many times as many where parts are nested; likewise."""

_NONE: Final[Names] = frozenset()
_HUGE: Final = math.inf


@dataclass(frozen=True, slots=True)
class Outline:
    """What is looked at of a query."""

    query: Query | None
    """None: one whose work nothing bounds."""
    words: int
    """How long it is, in words."""
    texts: Texts


def outline(text: str, tokens: Sequence[Token], base_iri: str) -> Outline:
    """The outline of a legal query. One of too many words is not parsed: nothing is computed for it."""
    if len(tokens) > _WORDS:
        return Outline(None, len(tokens), Texts(len(text), ()))
    try:
        query = parse_query(text, tokens, base_iri)
    except ParsingFailed:  # legal, as Oxigraph says, and beyond our grammar
        return Outline(None, len(tokens), Texts(len(text), ()))
    return Outline(query, len(tokens), Texts(len(text), nodes(query.pattern)))


def is_small(outlined: Outline, graph: LiveGraph, dataset: Dataset, *, whole: bool = False) -> bool:
    """Whether a query is sure to be done soon, on the graph as it is. Any thread.

    `whole`: what stands for its default graph is not the store's, even if neither it nor the dataset says so.
    """
    try:
        each = outlined.words + outlined.texts.work(graph.dictionary.longest)
        return most(outlined, graph, dataset, whole=whole) * each <= SURE
    except RuntimeError:  # another thread changed what was walked
        return False


def most(outlined: Outline, graph: LiveGraph, dataset: Dataset, *, whole: bool = False) -> float:
    """The most solutions at any point of its evaluation, and triples that it gives; infinite: nobody knows."""
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
    """What a query may come to cannot be said in reasonable time."""


class _Bounds:
    """The bounds of the parts of one query."""

    def __init__(self, graph: LiveGraph, *, whole: bool) -> None:
        """`whole`: a pattern may match in any graph."""
        self._graph = graph
        self._whole = whole
        self._looks = 0
        # By identity: to compare parts of a query takes longer than what is remembered of them.
        self._certain: dict[int, Names] = {}
        self._ids: dict[int, int] = {}
        """Of constants."""
        self._matches: dict[tuple[int, Names], float] = {}
        """What a triple pattern can match, by those of its variables that are bound."""

    def peak(self, node: Node, bound: Names) -> float:
        """The most solutions at any point of evaluating a pattern, at least 1, where the variables `bound` are."""
        self._looks += 1
        if self._looks > _LOOKS:
            raise _TooManyLooksError
        match node:
            case Triple() | Path() | Values() | Join():
                most = self._join(node.parts if isinstance(node, Join) else (node,), bound)
            case Union():
                most = sum(self.peak(branch, bound) for branch in node.branches)
            case LeftJoin() | Minus():
                most = self._beside(self.peak(node.left, bound), node.right, bound | self._sure(node.left))
            case Filter() | Extend():
                most = self.peak(node.pattern, bound)
            case GraphPattern():
                most = self.peak(node.pattern, bound)
                if isinstance(node.name, Variable | Blank) and node.name not in bound | self._sure(node.pattern):
                    most *= max(1, len(self._graph.graphs))
            case Group() | Project() | Distinct() | OrderBy() | Slice():
                most = self.peak(node.pattern, _NONE)  # by itself, whatever stands around it
            case _:
                return _HUGE
        for expression in own_expressions(node):
            for pattern in _exists(expression):
                most = self._beside(most, pattern, bound | self._sure(node))
        return most

    def _beside(self, most: float, node: Node, bound: Names) -> float:
        """What is looked up for each of so many solutions, or evaluated once by itself."""
        return max(most * self.peak(node, bound), self.peak(node, _NONE))

    def _join(self, parts: Sequence[Node], bound: Names) -> float:
        """The most over all patterns that it can begin with; then what can match least comes next."""
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
        """One part of a join."""
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
        """A path goes through each triple once from each of its beginnings, and gives each end once."""
        indexes = self._indexes(node.graph)
        if indexes is None:
            return _HUGE
        most = self._choices(node.path, indexes)
        path = node.path
        if isinstance(path, Repeat) and all(self._id(slot, bound) is None for slot in (node.subject, node.object)):
            most *= most if path.least else 1 + sum(index.size for index in indexes)
        return max(1, most)

    def _choices(self, path: PathExpression, indexes: Sequence[TripleIndex]) -> float:
        """Steps that a path can take from all of its beginnings together; where it repeats from each of them."""
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
        """Where a pattern may match; None: in too many graphs."""
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
        """What is bound in every solution of a part."""
        known = self._certain.get(id(node))
        if known is None:
            known = self._certain[id(node)] = certain(node)
        return known


_NOWHERE: Final = -2
"""Stands for the id of a term that is nowhere in the graph."""


def _exists(expression: Expression) -> list[Node]:
    if isinstance(expression, Exists):
        return [expression.pattern]
    if isinstance(expression, Call):
        return [pattern for argument in expression.arguments for pattern in _exists(argument)]
    return []
