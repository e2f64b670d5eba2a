"""Time of a delayed update: a delay or a time of day, in the syntax that clients use.

Delays are xsd:dayTimeDuration (XML Schema 1.1 Part 2, 3.4.27) or weeks (ISO 8601). Times are xsd:dateTime with a time
zone (3.3.7), or Unix time in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class After:
    """A delay in microseconds from now. Changes of the machine's clock do not affect it."""

    microseconds: int


@dataclass(frozen=True, slots=True)
class At:
    """A time of day: the machine's clock reaches this number of microseconds since 1970."""

    microseconds: int


When = After | At
"""Time at which a delayed update runs (SPS paper, section II)."""

_SECOND: Final = 1_000_000
_UNITS: Final = {"weeks": 7 * 86_400, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
# Years and months are not accepted, because their length varies. `re.ASCII`, because \d would match the digits of all
# scripts. Fifteen digits exceed the longest delay; `int` raises an error of its own from 4,300 digits on.
_DURATION: Final = re.compile(
    r"P(?=[T\d])(?:(?P<weeks>\d{1,15})W|(?:(?P<days>\d{1,15})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,15})H)?(?:(?P<minutes>\d{1,15})M)?(?:(?P<seconds>\d{1,15})(?:[.,](?P<fraction>\d+))?S)?)?)",
    re.ASCII,
)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)
# More digits are not a time. They get our error message instead of that of `int`, which stops at 4,300 digits.
_NUMBER: Final = re.compile(r"-?\d{1,20}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 100 * 366 * 86_400
"""Seconds of a hundred years."""
_EARLIEST: Final = 10**14
"""A time in 1973. A smaller number is probably in seconds or milliseconds."""
_LATEST: Final = 253_402_300_800 * _SECOND
"""The year 10000, which Python's datetime cannot represent."""
_ID_LENGTH: Final = 200


def read_when(delay: str | None, at: str | int | None, name: str | None = None) -> When | None:
    """Return the time at which a request is to run; None: now. `name` is the id of the delayed update.

    Raises `ValueError` with the remedy.
    """
    if delay is not None and at is not None:
        raise ValueError('"delay" and "at" exclude each other; give one of them')
    if delay is None and at is None:
        if name is not None:
            raise ValueError('"id" is for delayed updates; give "delay" or "at", too')
        return None
    if name is not None:
        check_id(name)
    return At(read_time(at)) if at is not None else After(read_delay(delay or ""))


def check_id(name: str) -> None:
    """Check the id of a delayed update. Raises `ValueError`."""
    if not (0 < len(name) <= _ID_LENGTH and name.isprintable()):
        raise ValueError(f'"id" must have 1 to {_ID_LENGTH} printable characters')


def read_delay(text: str) -> int:
    """Parse a duration to microseconds. Raises `ValueError`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(
            '"delay" must be a duration in days, hours, minutes and seconds, or in weeks, such as PT30S, PT1.5S, '
            f"P1DT12H or P2W; it is {text[:50]!r}"
        )
    seconds = sum(int(found[unit] or 0) * length for unit, length in _UNITS.items())
    if seconds > _LONGEST:
        raise ValueError('"delay" must not be longer than a hundred years')
    return seconds * _SECOND + _fraction(found["fraction"])


def read_time(value: str | int) -> int:
    """Parse a time to microseconds since 1970. Raises `ValueError`."""
    text = str(value)
    if _NUMBER.fullmatch(text):
        number = int(text)
        if number < _EARLIEST:
            raise ValueError(f'"at" is counted in microseconds since 1970; {number} would be in {_year(number)}')
    else:
        found = _TIME.fullmatch(text)
        if found is None:
            # A + that is not escaped arrives as a space (application/x-www-form-urlencoded).
            hint = " (in a URL or form a + is written %2B)" if re.search(r"\d \d\d:\d\d$", text) else ""
            raise ValueError(
                '"at" must be a time with time zone such as 2030-01-31T12:00:00Z, or microseconds since 1970; it is '
                f"{text[:50]!r}{hint}"
            )
        try:
            timestamp = datetime.fromisoformat(found[1] + found[3])
        except ValueError as error:
            raise ValueError(f'"at": {text[:50]!r} is not a valid time: {error}') from None
        number = (timestamp - _EPOCH) // timedelta(microseconds=1) + _fraction(found[2])
    if number >= _LATEST:
        raise ValueError('"at" must be before the year 10000')
    return number


def _fraction(digits: str | None) -> int:
    """Return the microseconds of a fraction of a second."""
    # xsd:dateTime allows any number of digits. Those below a microsecond are cut off.
    return int((digits or "").ljust(6, "0")[:6])


def _year(microseconds: int) -> str:
    return str((_EPOCH + timedelta(microseconds=microseconds)).year) if microseconds >= 0 else "the past"
