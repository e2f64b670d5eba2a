"""Windows of time: adjacent half-open intervals of equal length, aligned to the calendar in UTC."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

ORIGIN: Final = 4 * 86_400_000_000
"""Monday, 5 January 1970, in microseconds since 1970. A window begins there, so weeks begin on Mondays."""


def micros(length: timedelta) -> int:
    """Return a duration in microseconds, without rounding of floats."""
    return length // timedelta(microseconds=1)


def window_of(time: Column, window: timedelta) -> Column:
    """Return the start of the window that contains a time; both are in microseconds since 1970."""
    # `pmod` and not `%`, whose result is negative for times before the origin.
    return time - F.pmod(time - F.lit(ORIGIN), F.lit(micros(window)))
