# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Variables that an expression uses often: their numbers, times and texts become columns, computed once.

The value of a general term is an expression of some fifty operations. Without these columns, an expression with a
hundred uses of a variable would become a plan that Spark needs a minute to optimize.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.sparql.frames import Frame
from spark_offload.sparql.relational import Expression, FunctionCall
from spark_offload.sparql.values import KnownValue, TermValue, Value

_USES: Final = {TermValue: 3, KnownValue: 8}
"""Least number of uses for which the columns are worth their cost, by kind of value."""
_ARITHMETIC: Final = 3
"""Number of uses for which the operand of an addition counts."""
_NUMBERS: Final = count(1)


@dataclass(frozen=True)
class SharedValue(TermValue):
    """A term with all its interpretations in columns."""

    value: Column
    exact: Column
    ts: Column
    truth: Column
    date: Column
    micros: Column
    lexical: Column
    type: Column
    tag: Column

    def text(self) -> Column:
        return self.lexical

    def datatype(self) -> Column:
        return self.type

    def lang(self) -> Column:
        return self.tag

    def number(self) -> Column:
        return self.value

    def whole(self) -> Column:
        return self.exact

    def timestamp(self) -> Column:
        return self.ts

    def boolean(self) -> Column:
        return self.truth

    def day(self) -> Column:
        return self.date

    def duration(self) -> Column:
        return self.micros


def shared(solutions: Frame, expression: Expression) -> tuple[Frame, Expression]:
    """Add columns for the variables that an expression uses often. Returns the expression that uses them."""
    uses = Counter(_variables(expression))
    names = {}
    for name, uses_of_it in uses.items():
        value = solutions.values.get(name)
        if value is not None and uses_of_it >= _USES.get(type(value), uses_of_it + 1):
            names[name] = f"shared {next(_NUMBERS)}"
    if not names:
        return solutions, expression
    new = {names[name]: _interpreted(solutions.values[name]) for name in names}
    return solutions.extended(new), _renamed(expression, names)


def _interpreted(value: Value) -> Value:
    faces = (
        (value.number(), "double"),
        (value.whole(), "bigint"),
        (value.timestamp(), "timestamp"),
        (value.boolean(), "boolean"),
        (value.day(), "timestamp"),
        (value.duration(), "bigint"),
        (value.text(), "string"),
        (value.datatype(), "string"),
        (value.lang(), "string"),
    )
    columns = (F.lit(None).cast(type_) if face is None else face.cast(type_) for face, type_ in faces)
    return SharedValue(*(F.when(_always(), column) for column in (value.term(), *columns)))


def _always() -> Column:
    """Return a condition that is true, but not for Spark's optimizer.

    Otherwise the optimizer would put the expressions of the columns back to where the columns are used.
    """
    return F.monotonically_increasing_id() >= 0


def _variables(expression: Expression) -> Iterator[str]:
    match expression:
        case Variable(name):
            yield name
        case FunctionCall("IN" | "NOT IN", (one, *others)) if not all(isinstance(other, rdf.Iri) for other in others):
            # It compares with each of the others.
            for name in list(_variables(one)):
                yield from [name] * len(others)
            for other in others:
                yield from _variables(other)
        # Numbers, times and durations may be added: that uses all of their columns.
        case FunctionCall("+" | "-", (one, other)) if not any(isinstance(side, rdf.Literal) for side in (one, other)):
            for side in (one, other):
                yield from list(_variables(side)) * (_ARITHMETIC if isinstance(side, Variable) else 1)
        # BOUND uses only the term.
        case FunctionCall(called, arguments) if called != "BOUND":
            for argument in arguments:
                yield from _variables(argument)


def _renamed(expression: Expression, names: dict[str, str]) -> Expression:
    match expression:
        case Variable(name):
            return Variable(names.get(name, name))
        case FunctionCall(called, arguments):
            return FunctionCall(called, tuple(_renamed(argument, names) for argument in arguments))
        case _:
            return expression
