"""Translation of expressions of the relational form into column values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.errors import QueryRefused
from spark_offload.sparql import scans
from spark_offload.sparql.arithmetic import calculated, negative, number
from spark_offload.sparql.comparing import compared, different, equal, small, true
from spark_offload.sparql.constants import LiteralValue, value_of
from spark_offload.sparql.frames import either
from spark_offload.sparql.functions import FUNCTIONS, nothing
from spark_offload.sparql.relational import ExistsTest, Expression, FunctionCall
from spark_offload.sparql.values import BooleanValue, TermValue, Value

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def evaluated(expression: Expression, values: Mapping[str, Value]) -> Value:
    """Return the value of an expression. Raises `QueryRefused`."""
    match expression:
        case Variable(name):
            return values.get(name) or TermValue(nothing("string"))
        case FunctionCall(name, arguments):
            return _called(name, arguments, values)
        case ExistsTest():
            raise QueryRefused("EXISTS in this place is not supported")
        case _:
            return value_of(expression)


def holds(expression: Expression, values: Mapping[str, Value]) -> Column:
    """Return whether a condition holds. Null counts as false, which permits simple SQL that Spark can push down."""
    match expression:
        case FunctionCall("&&", arguments):
            rest, excluded = _excluded_numbers(arguments, values)
            return reduce(Column.__and__, [*(holds(one, values) for one in rest), *excluded])
        case FunctionCall("!=" | "NOT IN") if excluded := _excluded_numbers((expression,), values)[1]:
            return excluded[0]
        case FunctionCall("||", arguments):
            return reduce(Column.__or__, [holds(one, values) for one in arguments])
        case FunctionCall(name, (left, right)) if name in _COMPARISONS:
            return _compared(name, evaluated(left, values), evaluated(right, values))
        case FunctionCall("IN", (one, *others)) if all(isinstance(other, rdf.Iri) for other in others) and others:
            iri = evaluated(one, values).iri()
            return (
                F.lit(False)
                if iri is None
                else iri.isin(*(other.value for other in others if isinstance(other, rdf.Iri)))
            )
        case _:
            return true(evaluated(expression, values))


def _excluded_numbers(
    conditions: Iterable[Expression], values: Mapping[str, Value]
) -> tuple[list[Expression], list[Column]]:
    """Return the conditions that a variable is none of some numbers as one column for each variable, and the others.

    For many numbers this is much smaller than the comparison with each of them.
    """
    rest: list[Expression] = []
    numbers: dict[str, list[LiteralValue]] = {}
    for one in conditions:
        match one:
            case FunctionCall("!=", (Variable(name), rdf.Literal() as other)):
                constants = [other]
            case FunctionCall("!=", (rdf.Literal() as other, Variable(name))):
                constants = [other]
            case FunctionCall("NOT IN", (Variable(name), *others)):
                constants = [other for other in others if isinstance(other, rdf.Literal)]
                if len(constants) < len(others) or not others:
                    rest.append(one)
                    continue
            case _:
                rest.append(one)
                continue
        known = values.get(name)
        compared_with = [value for value in map(value_of, constants) if isinstance(value, LiteralValue)]
        plain = all(small(value) and value.number() is not None for value in compared_with)
        if known is None or known.number() is None or len(compared_with) < len(constants) or not plain:
            rest.append(one)
        else:
            numbers.setdefault(name, []).extend(compared_with)
    return rest, [different(values[name], constants) for name, constants in numbers.items()]


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of a conjunction."""
    if isinstance(expression, FunctionCall) and expression.name == "&&":
        for one in expression.arguments:
            yield from conjuncts(one)
    else:
        yield expression


def _compared(name: str, left: Value, right: Value) -> Column:
    """Compare values where errors count as false."""
    if name == "=":
        for one, other in ((left, right), (right, left)):
            known, constant = one.number(), other.number()
            if isinstance(other, LiteralValue) and small(other) and constant is not None and known is not None:
                # The plain comparison, which Spark can push down to the files. An error counts as false here.
                return known == constant
    condition = compared(name, left, right)
    if name in _MIRRORED:
        for operator, one, other in ((name, left, right), (_MIRRORED[name], right, left)):
            place, timestamp = one.placed(), other.timestamp()
            if place is not None and isinstance(other, LiteralValue) and timestamp is not None:
                return condition & scans.pushed(operator, place, timestamp)
    return condition


def _called(name: str, arguments: tuple[Expression, ...], values: Mapping[str, Value]) -> Value:
    if name == "BOUND":
        return BooleanValue(evaluated(arguments[0], values).bound())
    given = [evaluated(argument, values) for argument in arguments]
    if name in _COMPARISONS:
        return BooleanValue(compared(name, *given))
    match name:
        case "&&":
            return BooleanValue(reduce(Column.__and__, map(true, given)))
        case "||":
            return BooleanValue(reduce(Column.__or__, map(true, given)))
        case "!":
            return BooleanValue(~true(given[0]))
        case "IN" | "NOT IN":
            found = reduce(Column.__or__, [equal(given[0], other) for other in given[1:]], F.lit(False))
            return BooleanValue(found if name == "IN" else ~found)
        case "+" | "-" | "*" | "/" | "number +" | "number -" if len(given) == 2:
            return calculated(name, *given)
        case "-":
            return negative(given[0])
        case "+":
            return number(given[0])
        case "IF":
            return _chosen(*given)
        case "COALESCE":
            return reduce(lambda one, other: either(one.bound(), one, other), given or [TermValue(nothing("string"))])
    if name not in FUNCTIONS:
        raise QueryRefused(f"the function {name} is not supported")
    least, most, function = FUNCTIONS[name]
    if name == "BNODE" and given:
        raise QueryRefused("BNODE with an argument is not supported")
    if not least <= len(given) <= most:
        raise QueryRefused(f"the function {name} does not take {len(given)} arguments")
    return function(*given)


def _chosen(condition: Value, one: Value, other: Value) -> Value:
    """Evaluate IF. An error in the condition makes the result an error."""
    truth = true(condition)
    chosen = either(truth, one, other)
    return chosen.of(*(F.when(truth.isNotNull(), column) for column in chosen.columns()))
