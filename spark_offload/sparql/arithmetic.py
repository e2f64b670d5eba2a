"""Arithmetic (SPARQL 1.1 Query, section 17.3): on longs for integers, else on doubles."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import terms
from spark_offload.sparql.constants import LiteralValue
from spark_offload.sparql.durations import time_arithmetic
from spark_offload.sparql.number_values import RANKS, NumberValue
from spark_offload.sparql.values import DECIMAL, DOUBLE, FLOAT, INTEGER, TermValue, Value


def number(value: Value) -> NumberValue:
    """Return a value as a number; null for other values."""
    if isinstance(value, NumberValue):
        return value
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
    """Apply one of `+ - * /`; null means an error."""
    found = time_arithmetic(name, left, right)
    if found is None:
        return _of_numbers(name, number(left), number(right))
    if found.certain:
        return found.value
    # Terms of unknown type: numbers or times.
    return TermValue(F.coalesce(_of_numbers(name, number(left), number(right)).term(), found.value.term()))


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
