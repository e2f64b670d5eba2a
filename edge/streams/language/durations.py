"""Durations and times of window clauses: texts to microseconds and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

MILLISECOND: Final = 1000
SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
SHORTEST: Final = MILLISECOND
LONGEST: Final = 3653 * DAY
"""Ten years with their leap days."""

_NAMED: Final = {
    MILLISECOND: ("ms", "msec", "millisecond", "milliseconds"),
    SECOND: ("s", "sec", "second", "seconds"),
    60 * SECOND: ("m", "min", "minute", "minutes"),
    3600 * SECOND: ("h", "hour", "hours"),
    DAY: ("d", "day", "days"),
}
UNITS: Final = {name: length for length, names in _NAMED.items() for name in names}
"""Microseconds of each unit of C-SPARQL, by its names in lower case."""

# xsd:duration (XML Schema 1.1 Part 2, 3.3.6), and weeks (ISO 8601). More digits than 15 exceed the longest duration.
_DURATION: Final = re.compile(
    r"P(?=[T0-9])(?:([0-9]{1,15})Y)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15})W)?(?:([0-9]{1,15})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,15})H)?(?:([0-9]{1,15})M)?(?:([0-9]{1,15})(?:\.([0-9]{1,1000}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_LENGTHS: Final = (7 * DAY, DAY, 3600 * SECOND, 60 * SECOND, SECOND)
_PLAIN: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,1000}))?([A-Za-z]*)", re.ASCII)
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,1000}))?(Z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_402_300_800 * SECOND
"""The year 10000, which `datetime` cannot represent."""

_EXAMPLES: Final = "Write for example PT10S, PT1M30S, P1D, 10s, 500ms or 5m."


class InvalidValueError(ValueError):
    """A duration or a time is not valid; `remedy` is one sentence for its author."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


def read_duration(text: str) -> int:
    """Return the microseconds of an xsd:duration or of a number with a unit. Raises `InvalidValueError`.

    Digits below a microsecond are cut off.
    """
    found = _DURATION.fullmatch(text)
    microseconds = _plain(text) if found is None else _xsd(text, found)
    if microseconds < SHORTEST:
        raise InvalidValueError(f"{short(text)} is shorter than 1 millisecond", "Use at least PT0.001S.")
    if microseconds > LONGEST:
        raise InvalidValueError(f"{short(text)} is longer than 10 years", f"Use at most P{LONGEST // DAY}D.")
    return microseconds


def _xsd(text: str, found: re.Match[str]) -> int:
    years, months, *parts, fraction = found.groups()
    if years is not None or months is not None:
        problem = f"{short(text)} has {'months' if years is None else 'years'}, which have no fixed length"
        raise InvalidValueError(problem, "Write the number of days, for example P30D.")
    whole = sum(int(digits or 0) * length for digits, length in zip(parts, _LENGTHS, strict=True))
    return whole + _fraction(fraction, SECOND)


def _plain(text: str) -> int:
    found = _PLAIN.fullmatch(text)
    if found is None:
        raise InvalidValueError(f"{short(text)} is not a duration", _EXAMPLES)
    digits, fraction, unit = found.groups()
    if not unit:
        raise InvalidValueError(f"{short(text)} has no unit", f"Write for example {short(text)}s or {short(text)}ms.")
    length = UNITS.get(unit.lower())
    if length is None:
        raise InvalidValueError(f"{short(unit)} is not a unit of time", "Use ms, s, m, h or d.")
    return int(digits) * length + _fraction(fraction, length)


def _fraction(digits: str | None, length: int) -> int:
    """Return the microseconds of the digits after the point. `length`: microseconds of the unit."""
    return int(digits) * length // 10 ** len(digits) if digits else 0


def read_time(text: str) -> int:
    """Return the microseconds since 1970 of an xsd:dateTime with a time zone. Raises `InvalidValueError`."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidValueError(f'"{short(text)}" is not a time', 'Write for example "2026-01-31T12:00:00Z".')
    moment, fraction, zone = found.groups()
    if zone is None:
        raise InvalidValueError(f'"{short(text)}" has no time zone', f'Write "{short(text)}Z" for UTC.')
    try:
        # `fromisoformat` accepts minutes above 59 in a zone.
        if zone != "Z" and (int(zone[4:6]) > 59 or int(zone[1:3]) > 14):
            raise ValueError("the time zone is out of range")
        whole = (datetime.fromisoformat(moment + zone) - _EPOCH) // timedelta(microseconds=1)
    except ValueError as error:
        raise InvalidValueError(f'"{short(text)}" is not a time: {error}', "Check its parts.") from None
    microseconds = whole + _fraction(fraction, SECOND)
    if not 0 <= microseconds < _LATEST:
        raise InvalidValueError(f'"{short(text)}" is out of range', "Use a time from 1970 to 9999 in UTC.")
    return microseconds


def duration_text(microseconds: int) -> str:
    """Return a positive duration as xsd:dayTimeDuration in its canonical form."""
    days, rest = divmod(microseconds, DAY)
    hours, rest = divmod(rest, 3600 * SECOND)
    minutes, rest = divmod(rest, 60 * SECOND)
    seconds, fraction = divmod(rest, SECOND)
    point = f".{fraction:06}".rstrip("0") if fraction else ""
    time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    time += f"{seconds}{point}S" if seconds or fraction else ""
    return f"P{f'{days}D' if days else ''}{f'T{time}' if time or not days else ''}"


def time_text(microseconds: int) -> str:
    """Return a time since 1970 as xsd:dateTime in UTC. Times outside of the years 1 to 9999 are numbers."""
    try:
        time = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return str(microseconds)
    point = f".{time.microsecond:06}".rstrip("0") if time.microsecond else ""
    return f"{time.year:04}-{time:%m-%dT%H:%M:%S}{point}Z"


def short(text: str) -> str:
    """Return a text of the client for a message, cut to 40 characters."""
    return text if len(text) <= 40 else text[:40] + "..."
