"""Arithmetic (SPARQL 1.1 Query, section 17.3): on longs where both are known to be integers, else on doubles."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import terms
from spark_offload.sparql.constants import LiteralValue
from spark_offload.sparql.values import DECIMAL, DOUBLE, FLOAT, INTEGER, NumberValue, Value

_RANKS: Final = (INTEGER, DECIMAL, FLOAT, DOUBLE)
"""Numeric types in the order of promotion."""


def number(value: Value) -> NumberValue:
    """Return a value as a number; null for other values."""
    if isinstance(value, NumberValue):
        return value
    known = value.number()
    if known is None:
        return NumberValue(F.lit(None).cast("double"), DOUBLE)
    if isinstance(value, LiteralValue):
        kind = terms.datatype_of(value.constant)
        return NumberValue(known, kind if kind in _RANKS else INTEGER)
    datatype = value.datatype()
    assert datatype is not None  # noqa: S101  a number is a literal
    return NumberValue(known.cast("double"), F.when(datatype.isin(DECIMAL, FLOAT, DOUBLE), datatype).otherwise(INTEGER))


def rank_of(value: Value) -> Column:
    """Return the rank of a number's type in the order of promotion."""
    datatype = value.datatype()
    if isinstance(value, NumberValue) or datatype is None:
        return rank(number(value).type)
    return rank(datatype)


def calculated(name: str, left: Value, right: Value) -> NumberValue:
    """Apply one of `+ - * /`; null means an error."""
    one, other = number(left), number(right)
    type_ = _promoted(one.type, other.type)
    if name == "/":
        quotient = F.try_divide(one.column.cast("double"), other.column.cast("double"))
        if isinstance(type_, str):
            # The quotient of two integers is a decimal (section 17.3, op:numeric-divide).
            return NumberValue(quotient, DECIMAL if type_ == INTEGER else type_)
        return NumberValue(quotient, F.when(type_ == INTEGER, DECIMAL).otherwise(type_))
    operation = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[name]
    return NumberValue(operation(one.column, other.column), type_)


def negative(value: Value) -> NumberValue:
    """Apply the unary minus."""
    one = number(value)
    return NumberValue(F.try_subtract(F.lit(0).cast("bigint"), one.column) if one.whole else -one.column, one.type)


def rank(type_: Column | str) -> Column:
    """Return the rank of a type in the order of promotion."""
    if isinstance(type_, str):
        return F.lit(_RANKS.index(type_))
    return F.when(type_ == DOUBLE, 3).when(type_ == FLOAT, 2).when(type_ == DECIMAL, 1).otherwise(0)


def ranked(place: Column) -> Column:
    """Return the type of a rank."""
    return F.element_at(F.array(*map(F.lit, _RANKS)), place + 1)


def _promoted(one: Column | str, other: Column | str) -> Column | str:
    """Return the result type of an operation on two numbers."""
    if isinstance(one, str) and isinstance(other, str):
        return _RANKS[max(_RANKS.index(one), _RANKS.index(other))]
    if any(isinstance(type_, str) and type_ == DOUBLE for type_ in (one, other)):
        return DOUBLE
    return ranked(F.greatest(rank(one), rank(other)))
