"""Recent values of observations, which a gateway keeps: answers of `GET /api/series`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from edge.client.errors import BadAnswer
from edge.protocol.series import Value

Points = int | Literal["all"]
"""Most rows of a series. `all`: the rows as stored."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """A recorded value, or a summary of the values in a step of time."""

    time: datetime
    """Time of the value, or beginning of the step; UTC."""
    value: Value | None
    """The value; the last one of a step. None: the gateway recorded nothing from this time until the next row."""
    min: int | float | bool | None = None
    max: int | float | bool | None = None
    mean: float | None = None
    """Mean of the values; of booleans, the fraction that is true. None, as `min` and `max`, for texts."""
    count: int | None = None
    """Number of values in the step. None: the row is one value or a gap, and has no `min`, `max` and `mean`."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> SeriesRow:
        """Parse a row. Raises `LookupError`, `TypeError` or `ValueError`."""
        return cls(
            datetime.fromisoformat(row["time"]),
            row["value"],
            row.get("min"),
            row.get("max"),
            row.get("mean"),
            row.get("count"),
        )


@dataclass(frozen=True, slots=True)
class Series:
    """The recent values of one observation, in the order of time."""

    observation: str
    graph: str
    """IRI of the named graph that holds the observation; "" for the default graph."""
    kind: str
    """Kind of the values: number, boolean or text."""
    step: float | None
    """Seconds that a row summarises. None: the rows are as stored."""
    rows: tuple[SeriesRow, ...]

    @classmethod
    def several(cls, answer: Mapping[str, Any]) -> list[Series]:
        """Parse the member `series` of an answer. Raises `BadAnswer`."""
        return _each(
            answer,
            lambda one: cls(
                one["observation"], one["graph"], one["kind"], one["step"], tuple(map(SeriesRow.of, one["rows"]))
            ),
        )


@dataclass(frozen=True, slots=True)
class AvailableSeries:
    """An observation with recent values, and the period of the records that contain them."""

    observation: str
    graph: str
    """IRI of the named graph that holds the observation; "" for the default graph."""
    kind: str
    """Kind of the values: number, boolean or text."""
    start: datetime
    end: datetime

    @classmethod
    def several(cls, answer: Mapping[str, Any]) -> list[AvailableSeries]:
        """Parse the member `series` of an answer. Raises `BadAnswer`."""
        return _each(
            answer,
            lambda one: cls(
                one["observation"],
                one["graph"],
                one["kind"],
                datetime.fromisoformat(one["from"]),
                datetime.fromisoformat(one["to"]),
            ),
        )


def series_parameters(
    observations: Sequence[str], start: datetime | str, end: datetime | str, points: Points
) -> list[tuple[str, str]]:
    """Return the parameters of a request. Raises `ValueError` without observations, and for a time without zone."""
    if not observations:
        raise ValueError("name at least one observation; available_series() lists those with recent values")
    named = [("observation", observation) for observation in observations]
    return [*named, ("from", _time(start)), ("to", _time(end)), ("points", str(points))]


def _time(time: datetime | str) -> str:
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone, so the instant is not known; add one, such as UTC")
    return time.astimezone(UTC).isoformat()


def _each(answer: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    try:
        return [parse(one) for one in answer["series"]]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise BadAnswer(f"these are not series: {answer!r:.200}") from None
