"""Conditions on gateway, epoch and time that Spark pushes down, to skip the segments that cannot meet them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_offload.landing import OutboxEpoch
from spark_offload.landing_source.segment_rows import clamped
from spark_offload.landing_source.slices import Slice

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)


class SliceConditions:
    """Necessary conditions of a query. Spark evaluates all of its filters again on the rows."""

    def __init__(self) -> None:
        """Create a set without conditions."""
        self._names: dict[str, list[Collection[str]]] = {"gateway": [], "epoch": []}
        self._spans: list[tuple[int | None, int | None]] = []
        """Of each condition on the time, the first and last microsecond since 1970 that can meet it."""

    def add(self, one: Filter) -> None:
        """Add a filter of the query. Ignores filters that tell nothing about a segment."""
        match one:
            case EqualTo((("gateway" | "epoch") as column,), str(value)):
                self._names[column].append({value})
            case In((("gateway" | "epoch") as column,), values):
                self._names[column].append(set(values))
            case EqualTo((("ts" | "date"),), value) if span := _span(value):
                self._spans.append(span)
            case GreaterThan((("ts" | "date"),), value) | GreaterThanOrEqual((("ts" | "date"),), value) if span := (
                _span(value)
            ):
                self._spans.append((span[0], None))
            case LessThan((("ts" | "date"),), value) | LessThanOrEqual((("ts" | "date"),), value) if span := (
                _span(value)
            ):
                self._spans.append((None, span[1]))

    def allow_outbox(self, outbox: OutboxEpoch) -> bool:
        """Return whether rows of an outbox can meet the conditions."""
        return all(
            name in each
            for name, column in zip(outbox, ("gateway", "epoch"), strict=True)
            for each in self._names[column]
        )

    def allow(self, one: Slice) -> bool:
        """Return whether rows of a slice can meet the conditions."""
        end = clamped(one.manifest.end)
        start = end if one.manifest.tombstone else clamped(one.manifest.start)
        return all((first is None or end >= first) and (last is None or start <= last) for first, last in self._spans)


def _span(value: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """Return the first and last microsecond of a time or day; None for other values."""
    if isinstance(value, datetime):
        moment = (value - _BEGINNING) // _MICROSECOND if value.tzinfo else None
        return None if moment is None else (moment, moment)
    if isinstance(value, date):
        start = (value - _BEGINNING.date()) // _MICROSECOND
        return start, start + _DAY // _MICROSECOND - 1
    return None
