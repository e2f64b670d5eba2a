"""Kinds of option values: lengths of time, and moments."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Length(click.ParamType):
    """A length of time above 0: 90s, 5m, 1.5h, 1d, 2w."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length. Fails the command line."""
        if isinstance(value, timedelta):
            return value
        try:
            if found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])", value):
                length = timedelta(**{_UNITS[found[2]]: float(found[1])})
                if length > timedelta(0):
                    return length
        except OverflowError:
            pass
        self.fail(f"{value!r} is no length of time; write 90s, 5m, 1h, 1d or 2w", param, ctx)


class Moment(click.ParamType):
    """A date or a time (ISO 8601), in UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment, in UTC. Fails the command line."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
            return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time; write 2026-01-31 or 2026-01-31T18:00:00Z", param, ctx)
