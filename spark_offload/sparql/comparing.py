"""Comparison of values, and effective boolean values (SPARQL 1.1 Query, sections 17.2.2, 17.3 and 17.4.1)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import STRING
from spark_offload.sparql import lexical
from spark_offload.sparql.arithmetic import number
from spark_offload.sparql.constants import LiteralValue
from spark_offload.sparql.frames import equal_terms
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.terms import LANG_STRING
from spark_offload.sparql.values import BOOLEAN, MeasuredValue, Value

_ORDERS: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT: Final = 2.0**53
"""Doubles below this number represent each integer exactly."""


def compared(name: str, left: Value, right: Value) -> Column:
    """Apply one of `= != < <= > >=`; null means an error."""
    if name == "=":
        return equal(left, right)
    if name == "!=":
        return ~equal(left, right)
    return _first(_pairs(left, right), _ORDERS[name])


def equal(left: Value, right: Value) -> Column:
    """Compare two values: by value if it is known, else as terms."""
    if left.text() is None or right.text() is None:
        return equal_terms(left, right)  # one of them is not a literal
    result = F.when(F.lit(False), False)
    for one, other in _pairs(left, right):
        result = result.when(one.isNotNull() & other.isNotNull(), one == other)
    same = equal_terms(left, right)
    if _nan(left) and _nan(right):
        # NaN is not equal to itself (op:numeric-equal), even if the terms are the same.
        same = same & ~F.coalesce(F.isnan(number(left).column.cast("double")), F.lit(False))
    # Two different literals of a datatype that is not understood may have the same value: an error (17.4.1.7).
    return result.when(same, True).when(_differ(left, right), False)


def different(value: Value, numbers: Sequence[LiteralValue]) -> Column:
    """Return whether a value is none of these numbers, which a double represents exactly; null means an error."""
    known = value.number()
    assert known is not None  # noqa: S101  checked by the caller
    constants = [number.number() for number in numbers]
    double = known.cast("double")
    unequal = ~double.isin(*(one.cast("double") for one in constants if one is not None))
    return F.when(known.isNotNull(), unequal).otherwise(_differ(value, numbers[0]))


def _differ(left: Value, right: Value) -> Column:
    """Return whether two distinct terms are known to be different values; null if one is unbound."""
    # An IRI and an unbound value would be `false & null`, which is false.
    bound = left.bound() & right.bound()
    literal = _literal(left) & _literal(right)
    one, other = left.datatype(), right.datatype()
    assert one is not None  # noqa: S101  both may be literals
    assert other is not None  # noqa: S101
    # A literal with a language tag has no value in common with a literal of any datatype.
    tagged = (one == LANG_STRING) != (other == LANG_STRING)
    return F.when(bound & literal, tagged | (_understood(left) & _understood(right))).when(bound & ~literal, True)


def _literal(value: Value) -> Column:
    return value.term().startswith('"') if value.text() is not None and value.iri() is not None else F.lit(True)


def _understood(value: Value) -> Column:
    """Return whether the value of a literal is known."""
    datatype = value.datatype()
    assert datatype is not None  # noqa: S101  it is a literal
    known = (value.number(), value.timestamp(), value.boolean(), value.day(), value.duration())
    faces = [face.isNotNull() for face in known if face is not None]
    texts = datatype.isin(STRING, LANG_STRING)
    return reduce(Column.__or__, faces, texts)


def true(value: Value) -> Column:
    """Return the effective boolean value; null means an error."""
    boolean, number, plain, datatype = value.boolean(), value.number(), value.plain(), value.datatype()
    if datatype is None:
        return F.lit(None).cast("boolean")
    if boolean is not None and number is None and plain is None:
        return F.coalesce(boolean, F.when(datatype == BOOLEAN, False))
    result = F.when(F.lit(False), False)
    if boolean is not None:
        result = result.when(boolean.isNotNull(), boolean)
    if number is not None:
        result = result.when(number.isNotNull(), (number != 0) & ~F.isnan(number.cast("double")))
    if plain is not None:
        result = result.when(plain.isNotNull(), F.length(plain) > 0)
    return result.when(datatype.isin(BOOLEAN, *lexical.NUMBERS), False)


def _pairs(left: Value, right: Value) -> list[tuple[Column, Column]]:
    """Return the pairs of columns (number, time, boolean, string) in which both values can be compared."""
    large = not small(left) and not small(right)
    faces = (
        (left.whole() if large else None, right.whole() if large else None),
        (_number(left), _number(right)),
        (left.timestamp(), right.timestamp()),
        (left.day(), right.day()),
        (left.duration(), right.duration()),
        (left.boolean(), right.boolean()),
        (left.plain(), right.plain()),
    )
    return [(one, other) for one, other in faces if one is not None and other is not None]


def small(value: Value) -> bool:
    """Return whether doubles compare the integers of a value exactly with all others."""
    match value:
        case LiteralValue():
            try:
                return abs(float(value.constant.value)) < _EXACT
            except ValueError:
                return True
        case MeasuredValue():
            return not value.large
        case _:
            return value.whole() is None


def _number(value: Value) -> Column | None:
    """Return the number for comparisons, with null for NaN: Spark would sort NaN as the greatest number."""
    known = value.number()
    return F.nanvl(known, F.lit(None).cast("double")) if known is not None and _nan(value) else known


def _nan(value: Value) -> bool:
    """Return whether a value may be NaN."""
    match value:
        case LiteralValue():
            return value.constant.value == "NaN"
        case NumberValue():
            return not value.integer
        case MeasuredValue():
            return not value.finite
        case _:
            return value.number() is not None


def _first(pairs: list[tuple[Column, Column]], compare: Callable[[Column, Column], Column]) -> Column:
    """Compare in the first pair of columns that is not null. A single pair stays a plain comparison for pushdown."""
    if not pairs:
        return F.lit(None).cast("boolean")
    if len(pairs) == 1:
        return compare(*pairs[0])
    return F.coalesce(*(compare(one, other) for one, other in pairs))
