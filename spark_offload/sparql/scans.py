"""Evaluation of a star as one scan of rows that describe whole observations. It reads only the columns of the star."""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, EPOCH_LENGTH, STRING
from edge.sparql import terms as rdf
from edge.sparql.algebra import Variable
from spark_offload.sparql import lexical
from spark_offload.sparql.constants import value_of
from spark_offload.sparql.content import Content
from spark_offload.sparql.frames import Frame, equal_terms, frame
from spark_offload.sparql.relational import ConstantTerm, OneGraph, PatternTerm
from spark_offload.sparql.stars import INSTANT, OBSERVATION, RESULT, Star
from spark_offload.sparql.values import DerivedValue, IriValue, MeasuredValue, TextValue, TimeValue, Value

_ENDS: Final = {OBSERVATION: "", RESULT: "/result", INSTANT: "/instant"}
_DERIVED: Final = re.compile(rf"(.*)/([0-9a-f]{{{EPOCH_LENGTH}}})-([1-9][0-9]{{0,17}})(/result|/instant)?", re.DOTALL)
_NULLABLE: Final = ("series", "feature", "property", "sensor", "topic", "unit")


def scan(star: Star, content: Content, graph: OneGraph, rows: DataFrame) -> Frame:
    """Return the solutions of a star from rows that describe whole observations.

    `graph`: None for the default graph, a variable for all named graphs, an IRI for one of them. `rows` are the whole
    rows of the content, or some of them.
    """
    row = _Row(content)
    conditions: list[Column] = []
    bound: dict[str, Value] = {}
    if graph is None:
        if content.graphs:
            conditions.append(F.col("graph").isNull())
    else:
        conditions.append(F.col("graph").isNotNull())
        _meet(graph, IriValue(F.col("graph")), bound, conditions)
    row.answer(star, bound, conditions)
    bound_values = dict(bound)
    # An optional star binds all its variables or none: `found` is true if all its conditions hold.
    for more in star.optional:
        there: list[Column] = []
        known = dict(bound)
        row.answer(more, known, there)
        found = reduce(Column.__and__, there, F.lit(True))
        for name in known.keys() - bound:
            value = known[name]
            bound_values[name] = value.of(*(F.when(found, column) for column in value.columns()))
    return frame(rows.where(reduce(Column.__and__, conditions)) if conditions else rows, bound_values, bound)


class _Row:
    """Values of the columns of a row. Creates each value once, so that equal values are the same object."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._values: dict[str, Value] = {}

    def answer(self, star: Star, bound: dict[str, Value], conditions: list[Column]) -> None:
        """Add the variables of a star to `bound`, and the conditions of its constants and repeated variables."""
        for role, node in star.resources:
            if isinstance(node, Variable):
                _meet(node, self._value(role), bound, conditions)
            else:
                conditions += self._named(role, node)
        for column, node in star.cells:
            # A row without the value has no triple for it, so the pattern does not match.
            if column in _NULLABLE:
                conditions.append(F.col(column).isNotNull())
            _meet(node, self._value(column), bound, conditions)

    def _value(self, name: str) -> Value:
        if name not in self._values:
            self._values[name] = self._resource(name) if name in _ENDS else _cell(name, self._content)
        return self._values[name]

    def _resource(self, role: str) -> Value:
        # Rows with IRIs chosen by a client have these in columns. For other rows, the IRI follows from the key.
        derived = DerivedValue(F.col("series"), F.col("epoch"), F.col("seq"), _ENDS[role])
        return IriValue(F.coalesce(role, derived.iri())) if self._content.whole_chosen else derived

    def _named(self, role: str, constant: ConstantTerm) -> list[Column]:
        """Return the conditions under which a resource is `constant`.

        The IRI of a mapped observation contains the key of its row, so the conditions compare the key's columns.
        """
        found = _DERIVED.fullmatch(constant.value) if isinstance(constant, rdf.Iri) else None
        if found and (found[4] or "") == _ENDS[role]:
            return [F.col("series") == found[1], F.col("epoch") == found[2], F.col("seq") == int(found[3])]
        if self._content.whole_chosen and isinstance(constant, rdf.Iri):
            return [F.col(role) == constant.value]
        return [F.lit(False)]


def _meet(node: PatternTerm, value: Value, bound: dict[str, Value], conditions: list[Column]) -> None:
    """Bind a variable to a value, or add the condition that the value equals the node or the earlier binding."""
    if isinstance(node, Variable):
        known = bound.setdefault(node.name, value)
        if known is not value:
            conditions.append(equal_terms(known, value))
    else:
        conditions.extend(_is(value, node))


def _cell(column: str, content: Content) -> Value:
    """Return a column of the table as a value."""
    if column == "value":
        text, datatype = F.coalesce("value_text", F.lit("")), F.coalesce("datatype", F.lit(STRING))
        large = content.odd_numbers or content.large_numbers
        if not content.odd_numbers:
            return MeasuredValue(text, datatype, F.col("value"), large=large)
        number = F.coalesce("value", lexical.number(text, datatype))
        return MeasuredValue(text, datatype, number, finite=False, large=large)
    if column == "ts":
        if not content.odd_times:
            return TimeValue(F.col("ts"), date=F.col("date"))
        datatype = F.coalesce("time_datatype", F.lit(DATE_TIME_STAMP))
        return TimeValue(F.col("ts"), F.col("time_text"), datatype, F.col("date"))
    return TextValue(F.col("topic")) if column == "topic" else IriValue(F.col(column))


def _is(value: Value, constant: ConstantTerm) -> list[Column]:
    """Return the conditions under which a value is `constant`, in a form that lets Spark skip files and rows."""
    term = value_of(constant)
    conditions = [equal_terms(value, term)]
    if isinstance(value, MeasuredValue) and (number := term.number()) is not None:
        conditions += [value.form == constant.value, value.value == number]
    if (place := value.placed()) is not None and (timestamp := term.timestamp()) is not None:
        conditions.append(pushed("=", place, timestamp))
    return conditions


def pushed(operator: str, place: tuple[Column, Column], timestamp: Column) -> Column:
    """Return the condition on timestamp and partition that follows from a comparison with a constant time.

    Spark cannot derive the partition from the timestamp; the explicit condition lets it skip partitions.
    """
    ts, date = place
    compare, compare_date = _COMPARISONS[operator]
    return compare(ts, timestamp) & compare_date(date, timestamp.cast("date"))


_Comparison = Callable[[Any, Any], Column]
_COMPARISONS: Final[dict[str, tuple[_Comparison, _Comparison]]] = {
    "=": (operators.eq, operators.eq),
    "<": (operators.lt, operators.le),
    "<=": (operators.le, operators.le),
    ">": (operators.gt, operators.ge),
    ">=": (operators.ge, operators.ge),
}
"""Comparisons of timestamps by operator, and the weaker comparisons of their dates that follow."""
