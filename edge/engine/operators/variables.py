"""Variables of a pattern: those that its solutions may bind, and certainly bind (SPARQL 1.1 Query Language, 18.2.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from edge.sparql.algebra import (
    Blank,
    Call,
    Constant,
    Exists,
    Expression,
    Extend,
    Filter,
    GraphPattern,
    Group,
    Join,
    LeftJoin,
    Minus,
    Node,
    OrderBy,
    Path,
    Project,
    Reference,
    Service,
    Triple,
    Union,
    Values,
    Variable,
)

Name = Variable | Blank
"""A name that a pattern can bind."""

Names = frozenset[Name]

_NONE: Names = frozenset()


@lru_cache(maxsize=4096)
def possible(node: Node) -> Names:
    """Return the names that a solution may bind."""
    if isinstance(node, Triple):
        return _names(node.subject, node.predicate, node.object, node.graph)
    if isinstance(node, Path):
        return _names(node.subject, node.object, node.graph)
    if isinstance(node, Values):
        return frozenset(node.variables)
    if isinstance(node, Join | Union):
        return _NONE.union(*map(possible, node.parts if isinstance(node, Join) else node.branches))
    if isinstance(node, LeftJoin):
        return possible(node.left) | possible(node.right)
    if isinstance(node, Minus):
        return possible(node.left)
    if isinstance(node, Extend):
        return possible(node.pattern) | {node.variable}
    if isinstance(node, GraphPattern | Service):
        return possible(node.pattern) | _names(node.name)
    if isinstance(node, Group):
        return frozenset(node.keys) | {variable for variable, _ in node.aggregates}
    if isinstance(node, Project):
        return frozenset(node.variables)
    return possible(node.pattern)


@lru_cache(maxsize=4096)
def certain(node: Node) -> Names:
    """Return the names that every solution binds."""
    if isinstance(node, Triple | Path):
        return possible(node)
    if isinstance(node, Values):
        return frozenset(v for i, v in enumerate(node.variables) if all(row[i] is not None for row in node.rows))
    if isinstance(node, Join):
        return _NONE.union(*map(certain, node.parts))
    if isinstance(node, Union):
        first, *others = map(certain, node.branches)
        return first.intersection(*others)
    if isinstance(node, LeftJoin | Minus):
        return certain(node.left)
    if isinstance(node, Extend):
        bound = certain(node.pattern)
        value = node.expression
        # Other expressions can be errors, which leave the variable unbound.
        sure = isinstance(value, Constant) or (isinstance(value, Reference) and value.variable in bound)
        return bound | {node.variable} if sure else bound
    if isinstance(node, GraphPattern):
        return certain(node.pattern) | _names(node.name)
    if isinstance(node, Service):
        return _NONE
    if isinstance(node, Group):
        return certain(node.pattern) & frozenset(node.keys)
    if isinstance(node, Project):
        return certain(node.pattern) & frozenset(node.variables)
    return certain(node.pattern)


def binds(node: Node) -> Names:
    """Return the names that any part of a pattern may bind, even hidden ones, but not inside EXISTS."""
    return possible(node).union(*map(binds, children(node)))


def references(expression: Expression) -> Names:
    """Return the variables that an expression uses. For EXISTS these are all that its pattern binds or uses."""
    return frozenset(_references(expression))


def mentioned(node: Node) -> Names:
    """Return the names that a pattern may bind or use."""
    return frozenset(_mentioned(node))


def usage(node: Node, without: Sequence[Expression] = ()) -> Counter[Name]:
    """Return the number of triple patterns with each variable. A use anywhere else counts as two.

    `without`: expressions that do not count.
    """
    used: Counter[Name] = Counter()
    for each in nodes(node):
        if isinstance(each, Triple):
            used.update(possible(each))
        else:
            counted = [expression for expression in own_expressions(each) if expression not in without]
            looked = {name for expression in counted for name in references(expression)}
            used.update(dict.fromkeys(looked | _tied(each), 2))
    return used


def _tied(node: Node) -> Names:
    """Return the variables that the node itself binds, compares or exposes."""
    if isinstance(node, LeftJoin | Minus):
        return possible(node.right)
    if isinstance(node, Extend):
        return frozenset((node.variable,))
    if isinstance(node, GraphPattern):
        return _names(node.name)
    return _NONE if isinstance(node, Join | Union | Filter) else possible(node)


def has_exists(expression: Expression) -> bool:
    """Return whether an expression contains EXISTS."""
    if isinstance(expression, Call):
        return any(map(has_exists, expression.arguments))
    return isinstance(expression, Exists)


def _references(expression: Expression) -> Iterator[Name]:
    if isinstance(expression, Reference):
        yield expression.variable
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _references(argument)
    elif isinstance(expression, Exists):
        yield from _mentioned(expression.pattern)


def _mentioned(node: Node) -> Iterator[Name]:
    yield from possible(node)
    for expression in own_expressions(node):
        yield from _references(expression)
    for child in children(node):
        yield from _mentioned(child)


def children(node: Node) -> tuple[Node, ...]:
    """Return the patterns directly below a node."""
    if isinstance(node, Triple | Path | Values):
        return ()
    if isinstance(node, Join):
        return node.parts
    if isinstance(node, Union):
        return node.branches
    if isinstance(node, LeftJoin | Minus):
        return node.left, node.right
    return (node.pattern,)


def own_expressions(node: Node) -> list[Expression]:
    """Return the expressions of the node itself."""
    own: list[Expression | None] = []
    if isinstance(node, Filter):
        own += node.conditions
    elif isinstance(node, LeftJoin):
        own.append(node.condition)
    elif isinstance(node, Extend):
        own.append(node.expression)
    elif isinstance(node, Group):
        own += (aggregate.expression for _, aggregate in node.aggregates)
    elif isinstance(node, OrderBy):
        own += (expression for expression, _ in node.conditions)
    return [expression for expression in own if expression is not None]


def nodes(node: Node) -> Iterator[Node]:
    """Yield every node of a pattern, also inside EXISTS."""
    yield node
    for expression in own_expressions(node):
        for pattern in _exists_patterns(expression):
            yield from nodes(pattern)
    for child in children(node):
        yield from nodes(child)


def expressions(node: Node) -> Iterator[Expression]:
    """Yield every expression of a pattern, also inside EXISTS."""
    for each in nodes(node):
        yield from own_expressions(each)


def _exists_patterns(expression: Expression) -> Iterator[Node]:
    if isinstance(expression, Exists):
        yield expression.pattern
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _exists_patterns(argument)


def _names(*slots: object) -> Names:
    return frozenset(slot for slot in slots if isinstance(slot, Variable | Blank))
