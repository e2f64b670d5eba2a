"""The algebra in the normal form that operators need: no paths, no order, filters as high as possible.

Every rewriting preserves the solutions with their multiplicities. A path is a join or a union of triple patterns
(SPARQL 1.1 Query Language, 18.2.2.4 and 18.4). An order without a slice has no effect on a bag. A filter on a part of a
join can move to the whole join if the part certainly binds its variables. GRAPH around triple patterns is no node of
its own, because they name the graph.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise, product

from edge.engine.operators.expression import UnsupportedConstruct
from edge.engine.operators.variables import certain, children, has_exists, mentioned, own_expressions, references
from edge.sparql.algebra import (
    Alternative,
    Blank,
    Distinct,
    Expression,
    Extend,
    Filter,
    GraphPattern,
    Group,
    Inverse,
    Join,
    LeftJoin,
    Minus,
    Negated,
    Node,
    OrderBy,
    Path,
    PathExpression,
    PathLink,
    Project,
    Sequence,
    Service,
    Slice,
    Slot,
    Triple,
    Union,
    Values,
    Variable,
)

MAX_ALTERNATIVES = 16
"""Joins up to which a union in a join is distributed over its branches."""


def normal(node: Node) -> Node:
    """Return the pattern in normal form. Raises `UnsupportedConstruct` if no operator can evaluate it."""
    return _Rewriter().node(node)


def alternatives(node: Node) -> list[Node]:
    """Return the pattern as alternatives without unions at the top.

    Joins and the left side of OPTIONAL distribute over unions.
    """
    if isinstance(node, Union):
        return [alternative for branch in node.branches for alternative in alternatives(branch)]
    if isinstance(node, Join):
        parts = [alternatives(part) for part in node.parts]
        size = 1
        for each in parts:
            size *= len(each)
        # Each alternative is a plan of its own, and their number multiplies with each union.
        return [join(choice) for choice in product(*parts)] if 1 < size <= MAX_ALTERNATIVES else [node]
    if isinstance(node, LeftJoin | Minus):
        return [replace(node, left=left) for left in alternatives(node.left)]
    if isinstance(node, GraphPattern):
        return [_in_graph(node.name, pattern) for pattern in alternatives(node.pattern)]
    if isinstance(node, Filter | Extend):
        return [replace(node, pattern=pattern) for pattern in alternatives(node.pattern)]
    return [node]


def join(parts: tuple[Node, ...]) -> Node:
    """Return the join of parts in normal form, in normal form."""
    flat: list[Node] = []
    conditions: list[Expression] = []
    pending = list(reversed(parts))
    while pending:
        part = pending.pop()
        if isinstance(part, Join):
            pending += reversed(part.parts)
        elif isinstance(part, Filter):
            sure = certain(part.pattern)
            # A filter with EXISTS sees the variables of its own group, so it must not move.
            hoisted = [c for c in part.conditions if references(c) <= sure and not has_exists(c)]
            left = tuple(c for c in part.conditions if c not in hoisted)
            conditions += hoisted
            if left:
                flat.append(Filter(part.pattern, left))
            else:
                pending.append(part.pattern)
        else:
            flat.append(part)
    joined = flat[0] if len(flat) == 1 else Join(tuple(flat))
    return Filter(joined, tuple(conditions)) if conditions else joined


class _Rewriter:
    def __init__(self) -> None:
        self._numbers = count()

    def node(self, node: Node) -> Node:
        if isinstance(node, Triple | Values):
            return node
        if isinstance(node, Path):
            return self._path(node.subject, node.path, node.object, node.graph)
        if isinstance(node, Join):
            return join(tuple(map(self.node, node.parts)))
        if isinstance(node, Union):
            return _union(tuple(map(self.node, node.branches)))
        if isinstance(node, LeftJoin | Minus):
            return replace(node, left=self.node(node.left), right=self.node(node.right))
        if isinstance(node, Filter):
            return _filter(self.node(node.pattern), node.conditions)
        if isinstance(node, OrderBy):
            return self.node(node.pattern)
        if isinstance(node, GraphPattern):
            return _in_graph(node.name, self.node(node.pattern))
        if isinstance(node, Extend | Group | Project):
            return replace(node, pattern=self.node(node.pattern))
        if isinstance(node, Distinct):
            if node.reduced:
                raise UnsupportedConstruct("REDUCED in a sub-query")
            return replace(node, pattern=self.node(node.pattern))
        if isinstance(node, Slice):
            raise UnsupportedConstruct("LIMIT or OFFSET")
        assert isinstance(node, Service)  # noqa: S101
        raise UnsupportedConstruct("SERVICE")

    def _path(self, subject: Slot, path: PathExpression, object_: Slot, graph: Slot | None) -> Node:
        if isinstance(path, PathLink):
            return Triple(subject, path.predicate, object_, graph)
        if isinstance(path, Inverse):
            return self._path(object_, path.path, subject, graph)
        if isinstance(path, Sequence):
            nodes = [subject, *(Blank(f"/{next(self._numbers)}") for _ in path.steps[1:]), object_]
            steps = zip(pairwise(nodes), path.steps, strict=True)
            return join(tuple(self._path(start, step, end, graph) for (start, end), step in steps))
        if isinstance(path, Alternative):
            branches = tuple(self._path(subject, choice, object_, graph) for choice in path.choices)
            return _pairs(branches, subject, object_, graph)
        if isinstance(path, Negated):  # Oxigraph counts the solutions differently if both ends are known
            raise UnsupportedConstruct("a negated property set")
        raise UnsupportedConstruct("a path of any length (*, + or ?)")


def _pairs(branches: tuple[Node, ...], *ends: Slot | None) -> Node:
    """Return the pairs of ends of a path's branches, each pair once as in Oxigraph. The standard counts every way."""
    names = tuple(dict.fromkeys(end for end in ends if isinstance(end, Variable | Blank)))
    return Distinct(Project(_union(branches), names), reduced=False)


def _union(branches: tuple[Node, ...]) -> Node:
    flat = [b for branch in branches for b in (branch.branches if isinstance(branch, Union) else (branch,))]
    return flat[0] if len(flat) == 1 else Union(tuple(flat))


def _filter(pattern: Node, conditions: tuple[Expression, ...]) -> Node:
    if isinstance(pattern, Filter):
        return Filter(pattern.pattern, pattern.conditions + conditions)
    return Filter(pattern, conditions)


def _in_graph(name: Slot, pattern: Node) -> Node:
    """Return a pattern in a graph: itself if it matches only there, so that its parts can be joined in any order."""
    flat = _anchored(pattern, name) and (not isinstance(name, Variable) or _pointwise(pattern, name))
    return pattern if flat else GraphPattern(name, pattern)


def _pointwise(node: Node, name: Variable) -> bool:
    """Return whether each graph has the same solutions alone as together with the others.

    OPTIONAL, MINUS and EXISTS would find triples of other graphs, and expressions would not know the graph, unless a
    triple before them determines it.
    """
    looks = any(has_exists(each) or name in references(each) for each in own_expressions(node))
    if isinstance(node, LeftJoin | Minus):
        looks = looks or name in mentioned(node.right)
        left = node.left
    else:
        left = node.pattern if isinstance(node, Filter | Extend) else node
    if looks and not _anchored(left, name):
        return False
    return all(_pointwise(child, name) for child in children(node))


def _anchored(node: Node, name: Slot) -> bool:
    """Return whether every solution contains a triple of the graph, which proves that the graph exists."""
    if isinstance(node, Triple):
        return node.graph == name
    if isinstance(node, Join):
        return any(_anchored(part, name) for part in node.parts)
    if isinstance(node, LeftJoin | Minus):
        return _anchored(node.left, name)
    return isinstance(node, Filter | Extend) and _anchored(node.pattern, name)
