"""Recent values of observations: request and result, independent of the transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

Value = bool | int | float | str

MOST_POINTS: Final = 10_000
"""Most rows of a series that a request can ask for."""
USUAL_POINTS: Final = 300
"""Rows of a series if the request names no number."""
MOST_OBSERVATIONS: Final = 100
"""Most observations in a request."""


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """Which values a client asks for. Times are microseconds since 1970, UTC."""

    observations: Sequence[str]
    """IRIs."""
    begin: int
    end: int
    """The end itself is not included."""
    points: int | None = USUAL_POINTS
    """Most rows of a series; None: all rows as they are stored."""


class SeriesRow(NamedTuple):
    """One value, or the aggregate of several. A row without value begins a gap: nothing was recorded until the next."""

    time: int
    """Microseconds since 1970: time of the value, or beginning of the aggregated period."""
    value: Value | None
    """The value; of an aggregate, the last one."""
    samples: int | None = None
    """Number of aggregated values; None: the row is a single value."""
    low: Value | None = None
    """Minimum; None for texts, as are `high` and `mean`."""
    high: Value | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class SeriesResult:
    """The rows of one series, in the order of time."""

    observation: str
    graph: str
    """IRI of the named graph that holds the observation; empty for the default graph."""
    kind: str
    """"number", "boolean" or "text"."""
    step: int | None
    """Microseconds of an aggregated period; None: the rows are as they are stored."""
    rows: Sequence[SeriesRow]


@dataclass(frozen=True, slots=True)
class SeriesExtent:
    """A recorded series, and the period of the files that hold it. Times are microseconds since 1970."""

    observation: str
    graph: str
    kind: str
    begin: int
    end: int
