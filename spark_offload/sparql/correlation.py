"""Substitution of the variables of an outer query in the pattern of EXISTS (SPARQL 1.1 Query, section 18.6).

A pattern is evaluated once for all outer solutions: their values are rows, joined where the pattern uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.sparql import relational
from spark_offload.sparql.relational import ComputedRows, Expression, InnerJoin, Pattern

T = TypeVar("T")

_OUTER: Final = "outer "


def outer_name(name: str) -> str:
    """Return the name that a variable of the outer query has in the pattern."""
    return f"{_OUTER}{name}"


def correlates(pattern: Pattern, names: frozenset[str]) -> bool:
    """Return whether values of these outer variables decide more than which solutions of a pattern are compatible."""
    match pattern:
        case relational.LeftOuterJoin(left, right) | relational.AntiJoin(left, right):
            if relational.used(right) & names - relational.certain(left):
                return True
            return correlates(left, names) or correlates(right, names)
        case relational.InnerJoin(left, right) | relational.UnionAll(left, right):
            return correlates(left, names) or correlates(right, names)
        case relational.Selection(inner) | relational.ComputedColumn(inner) | relational.DistinctRows(inner):
            return correlates(inner, names)
        case relational.Projection(inner, variables):
            return correlates(inner, names & {*variables})
        case _:
            return False


def correlated(pattern: Pattern, names: frozenset[str], rows: ComputedRows) -> Pattern:
    """Return the pattern for all outer solutions at once.

    `rows` has their values under `outer_name`, and a variable that identifies each of them. Raises `QueryRefused`.
    """
    return _Correlation(rows).given(_substituted(pattern, names))


@dataclass(frozen=True)
class _Correlation:
    rows: ComputedRows

    def given(self, pattern: Pattern) -> Pattern:
        """Return a pattern whose solutions have the values of the outer query."""
        return self._joined(self._pattern(pattern))

    def _joined(self, pattern: Pattern) -> Pattern:
        if {*self.rows.variables} <= relational.visible(pattern):
            return pattern
        if pattern == relational.UNIT:
            return self.rows
        return InnerJoin(self.rows, pattern)

    def _needed(self, expression: Expression | None, inner: Pattern) -> bool:
        used = frozenset() if expression is None else relational.mentioned(expression)
        return _outer_in(used - relational.certain(inner))

    def _pattern(self, pattern: Pattern) -> Pattern:
        """Return a pattern that has the values of the outer query wherever it uses them."""
        match pattern:
            case relational.InnerJoin(left, right):
                return InnerJoin(self._pattern(left), self._pattern(right))
            case relational.LeftOuterJoin(left, right, condition):
                if _outer_in(relational.used(right)) or self._needed(condition, left):
                    return relational.LeftOuterJoin(self.given(left), self._pattern(right), condition)
                return relational.LeftOuterJoin(self._pattern(left), right, condition)
            case relational.AntiJoin(left, right):
                if _outer_in(relational.used(right)):
                    return relational.AntiJoin(self.given(left), self._pattern(right))
                return relational.AntiJoin(self._pattern(left), right)
            case relational.UnionAll(left, right):
                one, other = self._pattern(left), self._pattern(right)
                if one != left or other != right:
                    return relational.UnionAll(self._joined(one), self._joined(other))
                return pattern
            case relational.Selection(inner, condition):
                inside = self._pattern(inner)
                return replace(pattern, pattern=self._joined(inside) if self._needed(condition, inner) else inside)
            case relational.ComputedColumn(inner, variable, expression):
                inside = self._pattern(inner)
                if self._needed(expression, inner):
                    inside = self._joined(inside)
                if variable in relational.visible(inside):
                    given = Variable(variable)
                    free = relational.FunctionCall("!", (relational.FunctionCall("BOUND", (given,)),))
                    same = relational.FunctionCall("SAMETERM", (given, expression))
                    return relational.Selection(inside, relational.FunctionCall("||", (free, same)))
                return replace(pattern, pattern=inside)
            case relational.Projection(inner, variables):
                inside = self._pattern(inner)
                more = {*self.rows.variables} & relational.visible(inside)
                return relational.Projection(inside, tuple(dict.fromkeys((*variables, *sorted(more)))))
            case relational.DistinctRows(inner) | relational.Sort(inner):
                return replace(pattern, pattern=self._pattern(inner))
            case relational.Aggregation(inner) | relational.RowRange(inner):
                inside = self._pattern(inner)
                if inside != inner:
                    what = "an aggregate" if isinstance(pattern, relational.Aggregation) else "LIMIT"
                    raise QueryRefused(f"{what} in EXISTS over a pattern that uses outer variables is not supported")
                return pattern
            case _:
                return pattern


def _substituted(node: T, names: frozenset[str]) -> T:
    """Rename the variables of the outer query in a pattern or expression, except where a subquery hides them."""
    if isinstance(node, Variable):
        return cast("T", Variable(outer_name(node.name)) if node.name in names else node)
    if isinstance(node, relational.Projection):
        inside = _substituted(node.pattern, names & {*node.variables})
        return cast("T", relational.Projection(inside, _renamed(node.variables, names)))
    if isinstance(node, relational.InlineRows):
        return cast("T", replace(node, variables=_renamed(node.variables, names)))
    if isinstance(node, relational.Aggregation):
        keys = zip(_renamed(tuple(name for name, _ in node.keys), names), (key for _, key in node.keys), strict=True)
        node = cast("T", replace(node, keys=tuple(keys)))
    if isinstance(node, relational.ComputedColumn):
        (variable,) = _renamed((node.variable,), names)
        return cast(
            "T",
            relational.ComputedColumn(
                _substituted(node.pattern, names), variable, _substituted(node.expression, names)
            ),
        )
    if isinstance(node, tuple):
        return cast("T", tuple(_substituted(one, names) for one in node))
    if isinstance(node, ComputedRows) or not is_dataclass(node) or type(node).__module__ != relational.__name__:
        return node
    changed = {one.name: _substituted(getattr(node, one.name), names) for one in fields(node)}
    return cast("T", replace(cast("Any", node), **changed))


def _outer_in(names: Iterable[str]) -> bool:
    return any(name.startswith(_OUTER) for name in names)


def _renamed(variables: tuple[str, ...], names: frozenset[str]) -> tuple[str, ...]:
    return tuple(outer_name(name) if name in names else name for name in variables)
