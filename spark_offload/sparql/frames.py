"""Solutions as a DataFrame: columns of variables, and the operators of SPARQL 1.1 Query, section 18.5.

Column names are unique, so that joins are never ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload.sparql.relational import hidden
from spark_offload.sparql.values import KnownValue, MeasuredValue, TermValue, TimeValue, Value, known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Condition = Callable[[Mapping[str, Value]], Column]
"""Function from the values of variables to a boolean column."""


@dataclass(frozen=True)
class Frame:
    """Solutions, one in each row."""

    rows: DataFrame
    values: Mapping[str, Value]
    """Value of each variable, in columns of `rows`."""
    certain: frozenset[str]
    """The variables that each row binds."""

    def where(self, condition: Column) -> Frame:
        """Return the solutions that satisfy a condition."""
        return replace(self, rows=self.rows.where(condition))

    def only(self, names: Iterable[str]) -> Frame:
        """Restrict the solutions to these variables; unknown names are ignored."""
        kept = {name: value for name, value in self.values.items() if name in set(names)}
        return replace(self, values=kept, certain=self.certain & kept.keys())

    def without(self, name: str) -> Frame:
        """Return the solutions without a variable."""
        return self.only(self.values.keys() - {name})

    def extended(self, new: Mapping[str, Value], certain: Iterable[str] = ()) -> Frame:
        """Add variables, replacing existing ones with the same names."""
        named = {name: _named(name, value) for name, value in new.items()}
        columns = {name: column for parts in named.values() for name, column in parts.items()}
        values = {**self.values, **{name: value.of(*map(F.col, named[name])) for name, value in new.items()}}
        return Frame(self.rows.withColumns(columns) if columns else self.rows, values, self.certain | {*certain})


def frame(rows: DataFrame, values: Mapping[str, Value], certain: Iterable[str]) -> Frame:
    """Create a frame from rows, with renamed columns."""
    named = {name: _named(name, value) for name, value in values.items()}
    selected = rows.select(*(column.alias(name) for parts in named.values() for name, column in parts.items()))
    made = {name: value.of(*map(F.col, named[name])) for name, value in values.items()}
    return Frame(selected, made, frozenset(certain))


def join(left: Frame, right: Frame) -> Frame:
    """Join the compatible solutions of both sides."""
    shared = _shared(left, right)
    if not shared:
        rows = left.rows.crossJoin(right.rows)
    else:
        rows = left.rows.join(right.rows, _agreeing(left, right, shared), "inner")
    return _merged(left, right, shared, rows, left.certain | right.certain)


def left_join(left: Frame, right: Frame, condition: Condition | None) -> Frame:
    """OPTIONAL: extend solutions of the left with compatible ones of the right that satisfy the condition."""
    shared = _shared(left, right)
    on = _agreeing(left, right, shared)
    if condition is not None:
        on = on & condition(_both(left, right, shared))
    return _merged(left, right, shared, left.rows.join(right.rows, on, "left"), left.certain)


def having(left: Frame, right: Frame, condition: Condition | None, *, negated: bool = False) -> Frame:
    """EXISTS: keep solutions of the left with a compatible one on the right; `negated` keeps those without one."""
    shared = _shared(left, right)
    on = _agreeing(left, right, shared)
    if condition is not None:
        on = on & condition(_both(left, right, shared))
    return replace(left, rows=left.rows.join(right.rows, on, "left_anti" if negated else "left_semi"))


def minus(left: Frame, right: Frame) -> Frame:
    """MINUS: remove solutions of the left that are compatible with one of the right and share a variable with it."""
    shared = _shared(left, right)
    common = [name for name in shared if not hidden(name)]
    # Without a common variable MINUS removes nothing (section 8.3.1), unlike NOT EXISTS.
    if not common:
        return left
    on = _agreeing(left, right, shared)
    if not left.certain & right.certain & set(common):
        on = on & reduce(Column.__or__, (left.values[name].bound() & right.values[name].bound() for name in common))
    return replace(left, rows=left.rows.join(right.rows, on, "left_anti"))


def union(left: Frame, right: Frame) -> Frame:
    """Return the solutions of both sides."""
    values: dict[str, Value] = {}
    columns: tuple[list[Column], list[Column]] = ([], [])
    for name in {**left.values, **right.values}:
        sides = [side.values.get(name) for side in (left, right)]
        kind = _common([one for one in sides if one is not None])
        names = list(_named(name, kind))
        for side, selected in zip(sides, columns, strict=True):
            if side is not None:
                selected += [
                    column.alias(one) for one, column in zip(names, as_kind(side, kind).columns(), strict=True)
                ]
        values[name] = kind.of(*map(F.col, names))
    rows = left.rows.select(*columns[0]).unionByName(right.rows.select(*columns[1]), allowMissingColumns=True)
    return Frame(rows, values, left.certain & right.certain)


def distinct(solutions: Frame) -> Frame:
    """Remove duplicate solutions."""
    keyed = {name: grouping_key(value) for name, value in solutions.values.items()}
    made = frame(solutions.rows, keyed, solutions.certain)
    # Solutions without variables are all equal.
    return replace(made, rows=made.rows.distinct() if keyed else made.rows.limit(1))


def as_kind(value: Value, kind: Value) -> Value:
    """Convert a value to another kind."""
    if value.kind() == kind.kind():
        return value
    return known(value) if isinstance(kind, KnownValue) else TermValue(value.term())


def _common(values: list[Value]) -> Value:
    """Return a value of the common kind: a term, together with its typed value if the rows have one."""
    first = values[0]
    if all(value.kind() == first.kind() for value in values):
        return first
    return (
        known(first)
        if any(isinstance(value, (MeasuredValue, TimeValue, KnownValue)) for value in values)
        else TermValue(first.term())
    )


def equal_terms(left: Value, right: Value) -> Column:
    """Return whether two values are the same term; null if one is unbound."""
    mine, others = left.keys(), right.keys()
    if left.kind() == right.kind() and mine is not None and others is not None:
        return reduce(Column.__and__, [one == other for one, other in zip(mine, others, strict=True)])
    return left.term() == right.term()


def grouping_key(value: Value) -> Value:
    """Return a value whose columns are equal if and only if the terms are equal, as a key for grouping and DISTINCT.

    The typed columns of a `KnownValue` do not qualify: rows may have several representations of one term.
    """
    return TermValue(value.term()) if value.keys() is None or isinstance(value, KnownValue) else value


def _shared(left: Frame, right: Frame) -> list[str]:
    return [name for name in left.values if name in right.values]


def _agreeing(left: Frame, right: Frame, shared: Iterable[str]) -> Column:
    """Return the condition that two solutions are compatible (section 18.3)."""
    conditions = []
    for name in shared:
        one, other = left.values[name], right.values[name]
        condition = equal_terms(one, other)
        if name not in left.certain:
            condition = condition | ~one.bound()
        if name not in right.certain:
            condition = condition | ~other.bound()
        conditions.append(condition)
    return reduce(Column.__and__, conditions) if conditions else F.lit(True)


def _both(left: Frame, right: Frame, shared: Iterable[str]) -> dict[str, Value]:
    """Return the values of two compatible solutions."""
    values = {**right.values, **left.values}
    for name in shared:
        if name not in left.certain:
            values[name] = either(left.values[name].bound(), left.values[name], right.values[name])
    return values


def _merged(left: Frame, right: Frame, shared: list[str], rows: DataFrame, certain: frozenset[str]) -> Frame:
    values = _both(left, right, shared)
    joined = Frame(rows, values, certain)
    return joined.extended({name: values[name] for name in shared if name not in left.certain})


def either(condition: Column, one: Value, other: Value) -> Value:
    """Return `one` where the condition is true, else `other`."""
    kind = _common([one, other])
    sides = zip(as_kind(one, kind).columns(), as_kind(other, kind).columns(), strict=True)
    return kind.of(*(F.when(condition, this).otherwise(that) for this, that in sides))


def _named(name: str, value: Value) -> dict[str, Column]:
    """Return the columns of a variable by new unique names."""
    number = next(_NUMBERS)
    return {f"{name}_{number}_{place}": column for place, column in enumerate(value.columns())}


_NUMBERS: Final = count(1)
