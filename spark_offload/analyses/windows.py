"""Windows of time: half-open intervals of one length that fill the calendar, in UTC."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

ORIGIN: Final = 4 * 86_400_000_000
"""Monday, 5 January 1970, in microseconds since 1970. A window begins there: days at midnight, weeks on Mondays."""


def micros(length: timedelta) -> int:
    """Microseconds, exactly."""
    return length // timedelta(microseconds=1)


def window_of(moment: Column, window: timedelta) -> Column:
    """The beginning of the window in which a moment is; both are microseconds since 1970."""
    return moment - F.pmod(moment - F.lit(ORIGIN), F.lit(micros(window)))
