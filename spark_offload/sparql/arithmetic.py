# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Arithmetic (SPARQL 1.1 Query, section 17.3): on longs for integers, else on doubles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import terms
from spark_offload.sparql.constants import LiteralValue
from spark_offload.sparql.durations import DurationValue, time_arithmetic
from spark_offload.sparql.number_values import RANKS, NumberValue
from spark_offload.sparql.relational import Expression, FunctionCall
from spark_offload.sparql.values import DATE_TIME, DECIMAL, DOUBLE, FLOAT, INTEGER, TimeValue, Value

OF_NUMBERS: Final = {"+": "number +", "-": "number -"}
"""Names of the operations on numbers that are neither times nor durations."""
MAX_TIME_OPERANDS: Final = 4
"""Number of operands of a sum that may be times or durations. The expression would grow exponentially with more."""


def operands(expression: Expression) -> int:
    """Return the number of operands of nested additions and subtractions."""
    match expression:
        case FunctionCall("+" | "-", (left, right)):
            return operands(left) + operands(right)
        case _:
            return 1


def numbers_only(expression: Expression) -> Expression:
    """Return additions and subtractions as operations on numbers."""
    match expression:
        case FunctionCall("+" | "-" as name, (left, right)):
            return FunctionCall(OF_NUMBERS[name], (numbers_only(left), numbers_only(right)))
        case _:
            return expression


def number(value: Value) -> NumberValue:
    """Return a value as a number; null for other values."""
    if isinstance(value, NumberValue):
        return value
    if isinstance(value, CalculatedValue):
        return value.as_number()
    known = value.number()
    if known is None:
        return NumberValue(F.lit(None).cast("double"), DOUBLE)
    if isinstance(value, LiteralValue):
        kind = terms.datatype_of(value.constant)
        return NumberValue(known, kind if kind in RANKS else INTEGER)
    datatype, whole = value.datatype(), value.whole()
    assert datatype is not None  # noqa: S101  a number is a literal
    exact = F.lit(None).cast("bigint") if whole is None else whole
    rank = F.when(datatype == DOUBLE, 3).when(datatype == FLOAT, 2).when(datatype == DECIMAL, 1).otherwise(0)
    return NumberValue(known.cast("double"), rank, exact)


def calculated(name: str, left: Value, right: Value) -> Value:
    """Apply one of `+ - * /`, or of `OF_NUMBERS`; null means an error."""
    if name in OF_NUMBERS.values():
        return _of_numbers(name[-1], number(left), number(right))
    found = time_arithmetic(name, left, right)
    numbers = _of_numbers(name, number(left), number(right))
    if found.time is None and found.duration is None:
        return numbers
    if left.number() is None or right.number() is None:
        if found.duration is None:
            assert found.time is not None  # noqa: S101  one of them is there
            return found.time
        if found.time is None:
            return found.duration
    return _calculated_value(numbers, found.time, found.duration)


def _calculated_value(numbers: NumberValue, time: TimeValue | None, duration: DurationValue | None) -> Value:
    exact = numbers.whole()
    return CalculatedValue(
        numbers.column.cast("double"),
        rank(numbers),
        F.lit(None).cast("bigint") if exact is None else exact,
        F.lit(None).cast("timestamp") if time is None else time.ts,
        F.lit(None).cast("string") if time is None or time.form is None else time.form,
        F.lit(None).cast("bigint") if duration is None else duration.column,
    )


@dataclass(frozen=True)
class CalculatedValue(Value):
    """A result of arithmetic with operands of unknown type: a number, a time or a duration."""

    column: Column
    """The number, as in `NumberValue`; null for the others."""
    rank: Column
    exact: Column
    ts: Column
    """The time, as in `TimeValue`; null for the others."""
    form: Column
    micros: Column
    """The duration; null for the others."""

    def as_number(self) -> NumberValue:
        """Return the number; null for a time or a duration."""
        return NumberValue(self.column, self.rank, self.exact)

    def bound(self) -> Column:
        return self.number().isNotNull() | self.ts.isNotNull() | self.micros.isNotNull()

    def term(self) -> Column:
        return F.coalesce(*(value.term() for value in self._values()))

    def text(self) -> Column:
        return F.coalesce(*(value.text() for value in self._values()))

    def datatype(self) -> Column:
        return F.coalesce(*(value.datatype() for value in self._values()))

    def number(self) -> Column:
        return self.as_number().number()

    def whole(self) -> Column:
        return self.exact

    def timestamp(self) -> Column:
        return self.ts

    def duration(self) -> Column:
        return self.micros

    def _values(self) -> tuple[NumberValue, TimeValue, DurationValue]:
        return self.as_number(), TimeValue(self.ts, self.form, DATE_TIME), DurationValue(self.micros)


def _of_numbers(name: str, one: NumberValue, other: NumberValue) -> NumberValue:
    operation = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply, "/": F.try_divide}[name]
    if isinstance(one.type, str) and isinstance(other.type, str):
        type_ = RANKS[max(RANKS.index(one.type), RANKS.index(other.type))]
        if name != "/":
            return NumberValue(operation(one.column, other.column), type_)
        # The quotient of two integers is a decimal (section 17.3, op:numeric-divide).
        quotient = F.try_divide(one.column.cast("double"), other.column.cast("double"))
        return NumberValue(quotient, DECIMAL if type_ == INTEGER else type_)
    result = operation(one.column.cast("double"), other.column.cast("double"))
    if DOUBLE in (one.type if isinstance(one.type, str) else "", other.type if isinstance(other.type, str) else ""):
        return NumberValue(result, DOUBLE)
    place = F.greatest(rank(one), rank(other), F.lit(int(name == "/")))
    if name == "/":
        return NumberValue(result, place, F.lit(None).cast("bigint"))
    return NumberValue(result, place, operation(_exact(one), _exact(other)))


def negative(value: Value) -> NumberValue:
    """Apply the unary minus."""
    one = number(value)
    exact = None if one.exact is None else _minus(one.exact)
    return NumberValue(_minus(one.column) if one.integer else -one.column, one.type, exact)


def absolute(value: Value) -> NumberValue:
    """Return the absolute value."""
    one = number(value)
    exact = None if one.exact is None else F.when(one.exact < 0, _minus(one.exact)).otherwise(one.exact)
    column = F.when(one.column < 0, _minus(one.column)).otherwise(one.column) if one.integer else F.abs(one.column)
    return NumberValue(column, one.type, exact)


def rank(number: NumberValue) -> Column:
    """Return the place of the type of a number in the order of promotion."""
    return F.lit(RANKS.index(number.type)) if isinstance(number.type, str) else number.type


def _exact(number: NumberValue) -> Column:
    whole = number.whole()
    return F.lit(None).cast("bigint") if whole is None else whole


def _minus(whole: Column) -> Column:
    """Return the negative of a long, and null for the least one: Spark's own operator raises an error."""
    return F.try_subtract(F.lit(0).cast("bigint"), whole)
