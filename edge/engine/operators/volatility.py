"""Volatility: expressions whose value can change although the graph does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.engine.operators.now import NOW_FUNCTION
from edge.engine.operators.variables import children
from edge.sparql.algebra import Call, Exists, Expression, Extend, Filter, Group, LeftJoin, Node, OrderBy


def volatile(expression: Expression) -> bool:
    """Return whether an expression gives a different value each time: RAND, UUID, STRUUID, BNODE."""
    return any(call.name in _VOLATILE for call in _calls(expression))


def uses_now(expression: Expression) -> bool:
    """Return whether an expression uses the current time."""
    return any(call.name == "NOW" or call.function == NOW_FUNCTION for call in _calls(expression))


_VOLATILE: Final = frozenset({"RAND", "UUID", "STRUUID", "BNODE"})


def _calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for argument in expression.arguments:
            yield from _calls(argument)
    elif isinstance(expression, Exists):
        yield from _calls_within(expression.pattern)


def _calls_within(node: Node) -> Iterator[Call]:
    for expression in _expressions(node):
        yield from _calls(expression)
    for child in children(node):
        yield from _calls_within(child)


def _expressions(node: Node) -> Iterator[Expression]:
    """Yield the expressions of the node itself."""
    if isinstance(node, Filter):
        yield from node.conditions
    elif isinstance(node, Extend):
        yield node.expression
    elif isinstance(node, LeftJoin) and node.condition is not None:
        yield node.condition
    elif isinstance(node, OrderBy):
        yield from (condition for condition, _ in node.conditions)
    elif isinstance(node, Group):
        yield from (a.expression for _, a in node.aggregates if a.expression is not None)
