# ruff: noqa: D102  the docstrings of `Value` describe the methods
"""Durations, and arithmetic of times (XPath and XQuery Functions, section 10.8), which SPARQL 1.1 permits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox.observation import XSD
from spark_offload import triples
from spark_offload.sparql.values import DATE_TIME, MeasuredValue, TimeValue, Value, typed_literal

DAY_TIME_DURATION: Final = XSD + "dayTimeDuration"
ZONE_AT_END: Final = r"(Z|[+-]\d\d:\d\d)$"
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


@dataclass(frozen=True)
class Calculation:
    """Results of an operation on times and durations. A column is None if the operands never have such a result."""

    time: TimeValue | None
    duration: DurationValue | None


def time_arithmetic(name: str, left: Value, right: Value) -> Calculation:
    """Apply `+` or `-` to times and durations."""
    if name not in ("+", "-") or (isinstance(left, MeasuredValue) and isinstance(right, MeasuredValue)):
        # The results of two readings are numbers: their lexical forms need not be read.
        return Calculation(None, None)
    times, durations = (left.timestamp(), right.timestamp()), (left.duration(), right.duration())
    passed: list[Column] = []
    if durations[0] is not None and durations[1] is not None:
        passed.append((F.try_add if name == "+" else F.try_subtract)(durations[0], durations[1]))
    if name == "-" and times[0] is not None and times[1] is not None:
        passed.append(F.unix_micros(times[0]) - F.unix_micros(times[1]))
    shifted: list[TimeValue] = []
    if times[0] is not None and durations[1] is not None:
        shifted.append(_shifted(left, durations[1] if name == "+" else -durations[1]))
    if name == "+" and times[1] is not None and durations[0] is not None:
        shifted.append(_shifted(right, durations[0]))
    return Calculation(
        reduce(_first_time, shifted) if shifted else None, DurationValue(F.coalesce(*passed)) if passed else None
    )


def _first_time(one: TimeValue, other: TimeValue) -> TimeValue:
    forms = [F.lit(None).cast("string") if value.form is None else value.form for value in (one, other)]
    form = F.when(one.ts.isNotNull(), forms[0]).otherwise(forms[1])
    return TimeValue(F.coalesce(one.ts, other.ts), form, DATE_TIME)


def _shifted(time: Value, duration: Column) -> TimeValue:
    """Return a time after a duration, in the time zone of its lexical form."""
    begin = time.timestamp()
    assert begin is not None  # noqa: S101  checked by the caller
    micros = F.try_add(F.unix_micros(begin), duration)
    text = time.form if isinstance(time, TimeValue) else time.text()
    if text is None:
        return TimeValue(F.timestamp_micros(micros), type=DATE_TIME)
    zone = F.regexp_extract(text, ZONE_AT_END, 0)
    local = F.timestamp_micros(F.try_add(micros, zone_minutes(zone) * (60 * _SECOND)))
    form = F.concat(F.rtrim(triples.time_text(local), F.lit("Z")), zone)
    return TimeValue(F.timestamp_micros(micros), F.when(zone != "Z", form), DATE_TIME)


def zone_minutes(zone: Column) -> Column:
    """Return the offset of a time zone such as `+02:00`; 0 for UTC and for an empty text."""
    minutes = F.substring(zone, 2, 2).try_cast("bigint") * 60 + F.substring(zone, 5, 2).try_cast("bigint")
    return F.coalesce(F.when(zone.startswith("-"), -minutes).otherwise(minutes), F.lit(0).cast("bigint"))


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
