"""Rules on the scope of variables (SPARQL 1.1 Query Language, 11.4, 18.2.1 and 19.8), checked on the algebra."""

from __future__ import annotations

from collections.abc import Iterable

from edge.sparql.algebra import (
    Call,
    Distinct,
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
    Query,
    Reference,
    Service,
    Slice,
    Triple,
    Union,
    Values,
    Variable,
)
from edge.sparql.errors import SparqlError


class ScopeError(SparqlError):
    """A variable is assigned twice, or GROUP BY hides it."""

    def __init__(self, variable: Variable, problem: str, remedy: str, *, assigned: bool) -> None:
        """`assigned`: whether the error is at an AS."""
        super().__init__(f"?{variable.name} {problem}", None, remedy)
        self.variable = variable
        self.assigned = assigned


_Names = frozenset[Variable]


def check_scope(query: Query) -> None:
    """Raise `SparqlError` if a variable is assigned twice, or used although GROUP BY hides it."""
    _visible(query.pattern)


def _visible(node: Node) -> _Names:
    """Return the variables that a node may bind, after a check of all nodes below."""
    match node:
        case Triple(subject, _, object_, graph) | Path(subject, _, object_, graph):
            predicate = node.predicate if isinstance(node, Triple) else None
            return frozenset(slot for slot in (subject, predicate, object_, graph) if isinstance(slot, Variable))
        case Values(variables):
            for index, variable in enumerate(variables):
                if variable in variables[:index]:
                    raise ScopeError(variable, "occurs twice in VALUES", "Use different variables.", assigned=False)
            return frozenset(variables)
        case Join(parts) | Union(parts):
            return frozenset().union(*map(_visible, parts))
        case LeftJoin(left, right, condition):
            found = _visible(left) | _visible(right)
            _check_exists(() if condition is None else (condition,))
            return found
        case Minus(left, right):
            # Checked only: variables of the right side of MINUS are not in scope outside (18.2.1).
            _visible(right)
            return _visible(left)
        case GraphPattern(name, pattern) | Service(name, _, pattern):
            found = _visible(pattern)
            return found | {name} if isinstance(name, Variable) else found
        case Group(pattern, keys, aggregates):
            _visible(pattern)
            _check_exists(aggregate.expression for _, aggregate in aggregates if aggregate.expression is not None)
            return frozenset((*keys, *(variable for variable, _ in aggregates)))
        case Filter(pattern, conditions):
            found = _visible(pattern)
            _check_exists(conditions)
            return found
        case Extend(pattern, variable, expression):
            found = _visible(pattern)
            if variable in found:
                raise ScopeError(
                    variable, "already has a value, so AS cannot assign it", "Use a new variable.", assigned=True
                )
            _check_exists((expression,))
            _check_grouped(pattern, found, (expression,))
            return found | {variable}
        case OrderBy(pattern, order):
            found = _visible(pattern)
            _check_exists(expression for expression, _ in order)
            return found
        case Project(pattern, variables):
            found = _visible(pattern)
            _check_grouped(pattern, found, [Reference(one) for one in variables if isinstance(one, Variable)])
            return frozenset(one for one in variables if isinstance(one, Variable))
        case Distinct(pattern) | Slice(pattern):
            return _visible(pattern)


def _check_exists(expressions: Iterable[Expression]) -> None:
    """Check the patterns of EXISTS in expressions."""
    for expression in expressions:
        if isinstance(expression, Exists):
            _visible(expression.pattern)
        elif isinstance(expression, Call):
            _check_exists(expression.arguments)


def _check_grouped(pattern: Node, visible: _Names, expressions: Iterable[Expression]) -> None:
    """Check that the expressions of a SELECT with GROUP BY use only its keys and aggregates.

    HAVING and ORDER BY may use other variables (11.4), which have no value there.
    """
    if not _is_grouped(pattern):
        return
    for expression in expressions:
        hidden = [variable for variable in _variables(expression) if variable not in visible]
        if hidden:
            remedy = "Add it to GROUP BY, or put it in an aggregate such as SAMPLE()."
            raise ScopeError(hidden[0], "is neither in GROUP BY nor in an aggregate", remedy, assigned=False)


def _is_grouped(node: Node) -> bool:
    """Return whether a node belongs to the modifiers of a SELECT with GROUP BY or aggregates."""
    while isinstance(node, Extend | Filter | OrderBy):
        node = node.pattern
    if isinstance(node, Join) and len(node.parts) == 2 and isinstance(node.parts[1], Values):  # VALUES after HAVING
        return _is_grouped(node.parts[0])
    return isinstance(node, Group)


def _variables(expression: Expression) -> Iterable[Variable]:
    """Yield the variables of an expression outside of EXISTS."""
    if isinstance(expression, Reference):
        yield expression.variable
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _variables(argument)
