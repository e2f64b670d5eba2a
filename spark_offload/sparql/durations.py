# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Durations, and arithmetic of times (XPath and XQuery Functions, section 10.8), which SPARQL 1.1 permits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import XSD
from spark_offload.sparql.constants import LiteralValue
from spark_offload.sparql.values import DATE_TIME, MeasuredValue, TimeValue, Value, typed_literal

DAY_TIME_DURATION: Final = XSD + "dayTimeDuration"
_SECOND: Final = 1_000_000


@dataclass(frozen=True)
class DurationValue(Value):
    """An xsd:dayTimeDuration, as a number of microseconds."""

    column: Column

    def keys(self) -> tuple[Column, ...]:
        return (self.column,)

    def term(self) -> Column:
        return typed_literal(self.text(), DAY_TIME_DURATION)

    def text(self) -> Column:
        return _written(self.column)

    def datatype(self) -> Column:
        return F.when(self.column.isNotNull(), DAY_TIME_DURATION)

    def duration(self) -> Column:
        return self.column


class TimeResult(NamedTuple):
    """Result of an operation on times. `certain`: the operands cannot be numbers."""

    value: Value
    certain: bool


def time_arithmetic(name: str, left: Value, right: Value) -> TimeResult | None:
    """Apply `+` or `-` to times and durations. Returns None if the operands are never times."""
    if name not in ("+", "-"):
        return None
    one, other = _duration(left), _duration(right)
    if one is not None and other is not None:
        return TimeResult(DurationValue((F.try_add if name == "+" else F.try_subtract)(one, other)), certain=True)
    if other is not None and (time := left.timestamp()) is not None:
        return TimeResult(_shifted(time, other if name == "+" else -other), certain=True)
    if one is not None and name == "+" and (time := right.timestamp()) is not None:
        return TimeResult(_shifted(time, one), certain=True)
    begin, end = right.timestamp(), left.timestamp()
    if name == "+" or begin is None or end is None or MeasuredValue in (type(left), type(right)):
        return None
    passed = DurationValue(F.unix_micros(end) - F.unix_micros(begin))
    return TimeResult(passed, certain=left.number() is None or right.number() is None)


def _duration(value: Value) -> Column | None:
    """Return the microseconds of a value that is known to be a duration in all rows."""
    return value.duration() if isinstance(value, (DurationValue, LiteralValue)) else None


def _shifted(time: Column, duration: Column) -> Value:
    return TimeValue(F.timestamp_micros(F.try_add(F.unix_micros(time), duration)), type=DATE_TIME)


def _written(micros: Column) -> Column:
    """Return the canonical lexical form."""
    size = F.abs(micros)
    rest = {unit: F.pmod(size, F.lit(unit * _SECOND)) for unit in (86_400, 3_600, 60, 1)}

    def part(larger: Column, smaller: int, mark: str) -> Column:
        # Exact, because the remainder is subtracted before the division.
        count = ((larger - rest[smaller]) / F.lit(smaller * _SECOND)).cast("bigint")
        return F.when(count > 0, F.concat(count.cast("string"), F.lit(mark))).otherwise("")

    seconds = ((rest[60] - rest[1]) / F.lit(_SECOND)).cast("bigint").cast("string")
    fraction = F.rtrim(F.lpad(rest[1].cast("string"), 6, "0"), F.lit("0"))
    seconds = F.when(rest[1] > 0, F.concat(seconds, F.lit("."), fraction)).otherwise(seconds)
    clock = F.concat(
        part(rest[86_400], 3_600, "H"),
        part(rest[3_600], 60, "M"),
        F.when((rest[60] > 0) | (size == 0), F.concat(seconds, F.lit("S"))).otherwise(""),
    )
    sign = F.when(micros < 0, "-").otherwise("")
    clock = F.when((rest[86_400] > 0) | (size == 0), F.concat(F.lit("T"), clock)).otherwise("")
    return F.when(micros.isNotNull(), F.concat(sign, F.lit("P"), part(size, 86_400, "D"), clock))
