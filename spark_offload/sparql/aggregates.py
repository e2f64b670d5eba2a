"""Groups and aggregates (SPARQL 1.1 Query, sections 11 and 18.5.1).

An error in a group makes its SUM, AVG, MIN, MAX and GROUP_CONCAT an error, and their variables unbound. COUNT and
SAMPLE ignore errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.errors import QueryRefused
from spark_offload.sparql.arithmetic import number, rank_of, ranked
from spark_offload.sparql.frames import Frame, frame, grouping_key
from spark_offload.sparql.functions import nothing
from spark_offload.sparql.ordering import sorting
from spark_offload.sparql.relational import ColumnAggregate, hidden
from spark_offload.sparql.values import DECIMAL, DOUBLE, FLOAT, INTEGER, MeasuredValue, NumberValue, TextValue, Value

_RESULT: Final = "aggregate"


@dataclass(frozen=True)
class _Made:
    """An aggregate: the columns that Spark aggregates, and the value computed from them."""

    columns: Mapping[str, Column]
    value: Value
    certain: bool


def grouped(
    solutions: Frame, keys: Mapping[str, Value], aggregates: Mapping[str, tuple[ColumnAggregate, Value | None]]
) -> Frame:
    """Return one solution for each group. `aggregates` come with the values of their arguments."""
    keyed = solutions.extended({name: grouping_key(value) for name, value in keys.items()})
    made = {
        name: _made(f"{_RESULT} {place}", *described, solutions)
        for place, (name, described) in enumerate(aggregates.items())
    }
    columns = [column.alias(name) for one in made.values() for name, column in one.columns.items()]
    values = {name: keyed.values[name] for name in keys}
    by = [column for value in values.values() for column in value.columns()]
    # `agg` needs at least one column, and a GROUP BY may have no aggregate.
    rows = keyed.rows.groupBy(*by).agg(*columns or [F.count(F.lit(1)).alias(_RESULT)])
    values |= {name: one.value for name, one in made.items()}
    return frame(rows, values, [name for name, one in made.items() if one.certain])


def _made(name: str, aggregate: ColumnAggregate, argument: Value | None, solutions: Frame) -> _Made:
    if argument is None:
        if not aggregate.distinct:
            return _count(name, F.count(F.lit(1)))
        shown = [value.term() for one, value in solutions.values.items() if not hidden(one)]
        # a struct is not null where its fields are
        return _count(name, F.count_distinct(F.struct(*shown) if shown else F.lit(1)))
    match aggregate.name:
        case "COUNT":
            keys = grouping_key(argument).keys() or ()
            counted = F.count_distinct(*keys) if aggregate.distinct else F.count(F.when(argument.bound(), 1))
            return _count(name, counted)
        case "SUM" | "AVG":
            return _sum(name, aggregate, argument)
        case "MIN" | "MAX":
            return _extreme(name, aggregate, argument)
        case "SAMPLE":
            column = F.first(F.when(argument.bound(), _packed(argument)), ignorenulls=True)
            return _Made(
                {name: column, f"{name} hashed": F.expr(_HASHED)}, _unpacked(argument, F.col(name)), certain=False
            )
        case "GROUP_CONCAT":
            return _concatenated(name, aggregate, argument)
        case other:
            raise QueryRefused(f"the aggregate {other} is not supported")


def _count(name: str, column: Column) -> _Made:
    return _Made({name: column}, NumberValue(F.col(name), INTEGER), certain=True)


def _sum(name: str, aggregate: ColumnAggregate, argument: Value) -> _Made:
    one = number(argument)
    numbers, type_ = one.column, rank_of(argument)
    columns = {
        f"{name} all": F.count(F.lit(1)),
        f"{name} numbers": F.count(numbers),
        f"{name} type": F.max(F.when(numbers.isNotNull(), type_)),
    }
    if aggregate.distinct:
        # equal terms count once: of equal numbers there may be several terms
        different = F.array_distinct(F.collect_list(F.struct(argument.term().alias("term"), numbers.alias("number"))))
        items = F.transform(different, lambda item: item["number"])
        columns[f"{name} sum"] = F.aggregate(items, F.lit(0.0), lambda total, item: total + item)
        columns[f"{name} count"] = F.size(different)
    else:
        # `try_sum` gives null on overflow: an error of this group, where `sum` would fail the whole query.
        columns[f"{name} sum"] = F.try_sum(numbers) if one.whole else F.sum(numbers)
        columns[f"{name} count"] = F.count(numbers)
    total, how_many = F.col(f"{name} sum"), F.col(f"{name} count")
    whole = F.col(f"{name} all") == F.col(f"{name} numbers")
    kind = F.coalesce(F.col(f"{name} type"), F.lit(0))
    if aggregate.name == "SUM":
        result = F.when(whole, F.coalesce(total.cast("double"), F.lit(0.0)))
        if one.whole and not aggregate.distinct:
            return _Made(
                columns, NumberValue(F.when(whole, F.coalesce(total, F.lit(0).cast("bigint"))), INTEGER), certain=False
            )
        return _Made(columns, NumberValue(result, ranked(kind)), certain=False)
    mean = F.when(whole, F.coalesce(F.try_divide(total.cast("double"), how_many.cast("double")), F.lit(0.0)))
    # The average of no numbers is the integer 0 (18.5.1.4). The numbers below are ranks of types.
    empty = how_many == 0
    averaged = F.when(empty, INTEGER).when(kind == 3, DOUBLE).when(kind == 2, FLOAT).otherwise(DECIMAL)
    return _Made(columns, NumberValue(mean, averaged), certain=False)


def _extreme(name: str, aggregate: ColumnAggregate, argument: Value) -> _Made:
    pick = F.min_by if aggregate.name == "MIN" else F.max_by
    packed, order = _packed(argument), F.struct(*sorting(argument))
    columns = {
        f"{name} all": F.count(F.lit(1)),
        f"{name} bound": F.count(F.when(argument.bound(), 1)),
        f"{name} hashed": F.expr(_HASHED),
    }
    if isinstance(argument, MeasuredValue):  # numbers come first, and most are; which of equal ones it is, is open
        columns[f"{name} number"] = pick(packed, argument.value)
        columns[f"{name} other"] = pick(packed, F.when(argument.value.isNull(), order))
        found = F.coalesce(*(f"{name} {kind}" for kind in ("number", "other")[:: 1 if aggregate.name == "MIN" else -1]))
    else:
        columns[f"{name} value"] = pick(packed, order)
        found = F.col(f"{name} value")
    whole = F.col(f"{name} all") == F.col(f"{name} bound")
    return _Made(columns, _unpacked(argument, F.when(whole & _is_hashed(name), found)), certain=False)


_HASHED: Final = "collect_set(CAST(NULL AS INT))"
"""Aggregate that only matters by its kind: with it, Spark hashes non-numeric aggregates instead of sorting all rows."""


def _is_hashed(name: str) -> Column:
    """Return a condition that is always true. Using the column keeps Spark from removing the aggregate."""
    return F.size(f"{name} hashed") == 0


def _packed(value: Value) -> Column:
    return F.struct(*(column.alias(f"col{place}") for place, column in enumerate(value.columns(), start=1)))


def _unpacked(value: Value, column: Column) -> Value:
    """Return a value of the kind of `value` from a struct of its columns."""
    return value.of(*(column[f"col{place}"] for place in range(1, len(value.columns()) + 1)))


def _concatenated(name: str, aggregate: ColumnAggregate, argument: Value) -> _Made:
    known = [face for face in (argument.text(), argument.iri()) if face is not None]
    text = F.coalesce(*known) if known else nothing("string")
    if aggregate.distinct:
        different = F.array_distinct(F.collect_list(F.struct(argument.term().alias("term"), text.alias("text"))))
        texts = F.transform(different, lambda item: item["text"])
    else:
        texts = F.collect_list(text)
    columns = {
        f"{name} all": F.count(F.lit(1)),
        f"{name} texts": F.count(text),
        # The specification leaves the order open (18.5.1.7). Sorted, the result is reproducible.
        name: F.array_join(F.sort_array(texts), aggregate.separator),
    }
    whole = F.col(f"{name} all") == F.col(f"{name} texts")
    return _Made(columns, TextValue(F.when(whole, F.col(name))), certain=False)
