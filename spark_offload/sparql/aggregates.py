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
from spark_offload.sparql.arithmetic import number, rank
from spark_offload.sparql.frames import Frame, frame, grouping_key
from spark_offload.sparql.functions import nothing
from spark_offload.sparql.number_values import NumberValue
from spark_offload.sparql.ordering import sorting
from spark_offload.sparql.relational import ColumnAggregate, hidden
from spark_offload.sparql.values import INTEGER, MeasuredValue, TextValue, Value

_RESULT: Final = "aggregate"
_SCALE: Final = 1e6
"""Sums of decimals with up to six digits after the point are exact."""


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
    numbers = one.number()
    columns = {
        f"{name} all": F.count(F.lit(1)),
        f"{name} numbers": F.count(numbers),
        f"{name} rank": F.max(F.when(numbers.isNotNull(), rank(one))),
        **(_distinct_total if aggregate.distinct else _total)(name, argument, one),
    }
    total, exact, count = (F.col(f"{name} {part}") for part in ("sum", "exact", "count"))
    if not aggregate.distinct and not one.integer:
        scaled = F.when(F.col(f"{name} scaled count") == F.col(f"{name} numbers"), F.col(f"{name} scaled"))
        total = F.when(F.col(f"{name} rank") == 1, F.coalesce(scaled.cast("double") / _SCALE, total)).otherwise(total)
    valid = F.col(f"{name} all") == F.col(f"{name} numbers")
    kind = F.coalesce(F.col(f"{name} rank"), F.lit(0))
    if aggregate.name == "SUM":
        # The sum of no numbers is the integer 0 (18.5.1.3).
        double = F.when(valid, F.coalesce(total.cast("double"), F.lit(0.0)))
        none = F.when(F.col(f"{name} all") == 0, F.lit(0).cast("bigint"))
        return _Made(columns, NumberValue(double, kind, F.when(valid, F.coalesce(exact, none))), certain=False)
    mean = F.try_divide(F.when(kind == 0, exact).otherwise(total).cast("double"), count.cast("double"))
    # The average of no numbers is that, too (18.5.1.4).
    empty = count == 0
    mean = F.when(valid, F.when(empty, 0.0).otherwise(mean))
    place = F.when(empty, 0).otherwise(F.greatest(kind, F.lit(1)))
    return _Made(columns, NumberValue(mean, place, F.when(valid & empty, F.lit(0).cast("bigint"))), certain=False)


def _total(name: str, _: Value, one: NumberValue) -> dict[str, Column]:
    """Return the columns of a sum. `try_sum` gives null on overflow, where `sum` would fail the whole query."""
    whole, numbers = one.whole(), one.number()
    columns = {
        f"{name} exact": F.try_sum(F.lit(None).cast("bigint") if whole is None else whole),
        f"{name} count": F.count(numbers),
    }
    if one.integer:
        return columns | {f"{name} sum": F.try_sum(numbers)}
    # The error of a sum of doubles grows with the number of rows. Decimals with few digits are added as longs.
    scaled = F.rint(numbers * _SCALE)
    scaled = F.when((scaled / _SCALE == numbers) & (F.abs(scaled) < 2.0**53), scaled).cast("bigint")
    return columns | {
        f"{name} sum": F.sum(numbers),
        f"{name} scaled": F.try_sum(scaled),
        f"{name} scaled count": F.count(scaled),
    }


def _distinct_total(name: str, argument: Value, one: NumberValue) -> dict[str, Column]:
    """Return the columns of a sum of distinct terms. Equal numbers may have several terms."""
    whole = one.whole()
    exact = F.lit(None).cast("bigint") if whole is None else whole
    item = F.struct(argument.term().alias("term"), one.number().alias("number"), exact.alias("exact"))
    different = F.array_distinct(F.collect_list(item))
    doubles = F.transform(different, lambda one: one["number"].cast("double"))
    longs = F.transform(different, lambda one: one["exact"])
    return {
        f"{name} sum": F.aggregate(doubles, F.lit(0.0), lambda total, item: total + item),
        f"{name} exact": F.aggregate(longs, F.lit(0).cast("bigint"), lambda total, item: F.try_add(total, item)),
        f"{name} count": F.size(different),
    }


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
