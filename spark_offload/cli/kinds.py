"""Kinds of option values: lengths of time, and moments."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import click

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Length(click.ParamType[timedelta]):
    """A length of time above 0: 90s, 5m, 1.5h, 1d, 2w."""

    name = "length"

    def convert(self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])", value)
        length = timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else timedelta(0)
        if not length:
            self.fail(f'"{value}" is no length of time: write 90s, 5m, 1.5h, 1d or 2w', param, ctx)
        return length


class Moment(click.ParamType[datetime]):
    """A date or a time (ISO 8601), in UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
            return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f'"{value}" is no time: write 2026-01-31 or 2026-01-31T18:00:00Z', param, ctx)
