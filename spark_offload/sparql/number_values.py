# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Computed numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql import lexical
from spark_offload.sparql.values import DECIMAL, DOUBLE, FLOAT, INTEGER, Value, typed_literal

RANKS: Final = (INTEGER, DECIMAL, FLOAT, DOUBLE)
"""Numeric types in the order of promotion."""


@dataclass(frozen=True)
class NumberValue(Value):
    """A computed number.

    With the same type in all rows, `column` is a long for integers and a double for others. Otherwise it is a double,
    and `exact` has the long. An operation on such numbers uses each column of its operands once, so that a sum of many
    terms is an expression of linear size.
    """

    column: Column
    type: Column | str
    """Datatype IRI, or a column with the place in `RANKS`."""
    exact: Column | None = None
    """If the type is a column: the value of an integer, null for other types and for an error."""

    @property
    def integer(self) -> bool:
        """Whether the number is known to be an integer in all rows."""
        return isinstance(self.type, str) and self.type == INTEGER

    def bound(self) -> Column:
        return self.number().isNotNull()

    def keys(self) -> tuple[Column, ...] | None:
        # Equal doubles may be different terms, because their datatypes may differ.
        return (self.column,) if self.integer else None

    def term(self) -> Column:
        return typed_literal(self.text(), self.type if isinstance(self.type, str) else ranked(self.type))

    def text(self) -> Column:
        if isinstance(self.type, str):
            return lexical.written(self.column, self.type)
        assert self.exact is not None  # noqa: S101  see `exact`
        forms = [self.exact.cast("string"), *(lexical.written(self.column, type_) for type_ in RANKS[1:])]
        places = (F.when(self.type == place, form) for place, form in enumerate(forms))
        return F.coalesce(*places)

    def datatype(self) -> Column:
        type_ = F.lit(self.type) if isinstance(self.type, str) else ranked(self.type)
        return F.when(self.bound(), type_)

    def number(self) -> Column:
        if self.exact is None or isinstance(self.type, str):
            return self.column
        return F.when((self.type != 0) | self.exact.isNotNull(), self.column)

    def whole(self) -> Column | None:
        return self.exact if self.exact is not None else self.column if self.integer else None


def ranked(place: Column) -> Column:
    """Return the datatype of a place in `RANKS`."""
    return F.element_at(F.array(*map(F.lit, RANKS)), place + 1)
