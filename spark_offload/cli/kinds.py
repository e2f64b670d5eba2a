"""Types of option values: durations and timestamps."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Length(click.ParamType[timedelta]):
    """Duration above 0: 90s, 5m, 1.5h, 1d, 2w."""

    name = "length"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse a duration. click passes a default that is a `timedelta` already through this method, too."""
        if isinstance(value, timedelta):
            return value
        # Six digits at most, so that no unit exceeds the range of `timedelta`.
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])", value)
        length = timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else timedelta(0)
        if not length:
            self.fail(f'"{value}" is not a duration: write 90s, 5m, 1.5h, 1d or 2w', param, ctx)
        return length


class Timestamp(click.ParamType[datetime]):
    """Date or time (ISO 8601), in UTC unless the text has an offset."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a timestamp. Returns an aware `datetime` in UTC."""
        if isinstance(value, datetime):
            return value
        try:
            parsed = datetime.fromisoformat(value)
            return (parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed).astimezone(UTC)
        except (ValueError, OverflowError):  # OverflowError: the offset leads beyond the years 1 to 9999
            self.fail(f'"{value}" is not a time: write 2026-01-31 or 2026-01-31T18:00:00Z', param, ctx)
