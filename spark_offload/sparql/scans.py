"""A star as one scan of the rows that the mapping stored: only the columns that it needs, and conditions on these."""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import rdflib
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import DATE_TIME_STAMP, EPOCH_LENGTH, STRING
from spark_offload.sparql import lexical
from spark_offload.sparql.algebra import Constant, Graph, Node, Variable
from spark_offload.sparql.constants import value_of
from spark_offload.sparql.content import Content
from spark_offload.sparql.frames import Frame, equal_terms, frame
from spark_offload.sparql.stars import INSTANT, OBSERVATION, RESULT, Star
from spark_offload.sparql.values import Derived, Iri, Measured, Moment, Text, Value

_ENDS: Final = {OBSERVATION: "", RESULT: "/result", INSTANT: "/instant"}
_DERIVED: Final = re.compile(rf"(.*)/([0-9a-f]{{{EPOCH_LENGTH}}})-([1-9][0-9]{{0,17}})(/result|/instant)?", re.DOTALL)
_NULLABLE: Final = ("feature", "property", "sensor", "topic", "unit")


def scan(star: Star, content: Content, graph: Graph) -> Frame:
    """Solutions of a star from rows with a series."""
    conditions = [F.col("series").isNotNull()]
    bound: dict[str, Value] = {}

    def meet(node: Node, value: Value) -> None:
        if isinstance(node, Variable):
            known = bound.setdefault(node.name, value)
            if known is not value:
                conditions.append(equal_terms(known, value))
        else:
            conditions.extend(_is(value, node))

    if graph is None:
        conditions.append(F.col("graph").isNull())
    else:
        conditions.append(F.col("graph").isNotNull())
        meet(graph, Iri(F.col("graph")))
    for role, node in star.resources:
        meet(node, Derived(F.col("series"), F.col("epoch"), F.col("seq"), _ENDS[role]))
    for column, node in star.cells:
        if column in _NULLABLE:
            conditions.append(F.col(column).isNotNull())
        meet(node, _cell(column, content))
    return frame(content.rows.where(reduce(Column.__and__, conditions)), bound, bound)


def _cell(column: str, content: Content) -> Value:
    """What is in a column, as a value."""
    if column == "value":
        text, datatype = F.coalesce("value_text", F.lit("")), F.coalesce("datatype", F.lit(STRING))
        if not content.odd_numbers:
            return Measured(text, datatype, F.col("value"))
        return Measured(text, datatype, F.coalesce("value", lexical.number(text, datatype)), finite=False)
    if column == "ts":
        if not content.odd_times:
            return Moment(F.col("ts"), date=F.col("date"))
        datatype = F.coalesce("time_datatype", F.lit(DATE_TIME_STAMP))
        return Moment(F.col("ts"), F.col("time_text"), datatype, F.col("date"))
    return Text(F.col("topic")) if column == "topic" else Iri(F.col(column))


def _is(value: Value, constant: Constant) -> list[Column]:
    """Conditions for a value to be this term, such that files and rows without it are not read."""
    if isinstance(value, Derived):
        found = _DERIVED.fullmatch(constant) if isinstance(constant, rdflib.URIRef) else None
        if not found or (found[4] or "") != value.end:
            return [F.lit(False)]
        return [value.series == found[1], value.epoch == found[2], value.seq == int(found[3])]
    term = value_of(constant)
    conditions = [equal_terms(value, term)]
    if isinstance(value, Measured) and (number := term.number()) is not None:
        conditions += [value.form == str(constant), value.value == number]
    if (place := value.placed()) is not None and (moment := term.moment()) is not None:
        conditions.append(pushed("=", place, moment))
    return conditions


def pushed(operator: str, place: tuple[Column, Column], moment: Column) -> Column:
    """What is true of where a moment is if it compares so with a constant: the partition, which Spark cannot know."""
    ts, date = place
    compare, beside = _COMPARISONS[operator]
    return compare(ts, moment) & beside(date, moment.cast("date"))


_Comparison = Callable[[Any, Any], Column]
_COMPARISONS: Final[dict[str, tuple[_Comparison, _Comparison]]] = {
    "=": (operators.eq, operators.eq),
    "<": (operators.lt, operators.le),
    "<=": (operators.le, operators.le),
    ">": (operators.gt, operators.ge),
    ">=": (operators.ge, operators.ge),
}
"""Of moments, and of the days that they are in."""
