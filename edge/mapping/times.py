"""Timestamps in messages: ISO 8601, Unix time in several scales, patterns; converted to UTC with zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because
from edge.mapping.values import JsonNumber, shown

FORMATS: Final = ("auto", "iso8601", "unix", "unix_ms", "unix_us")
_SCALES: Final = {"unix": Decimal(1), "unix_ms": Decimal("1e-3"), "unix_us": Decimal("1e-6")}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
_UNIX = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+]?[0-9]{1,2})?").fullmatch
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})").fullmatch


class BadTimeError(ValueError):
    """The timestamp of a message is invalid; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """Format of a timestamp: one of `FORMATS` or a `strptime` pattern, and the zone if it contains none."""

    format: str = "auto"
    zone: tzinfo | None = None

    def parse(self, raw: object) -> datetime | None:
        """Return the time in UTC; None if it is missing (null, empty). Raises `BadTimeError`."""
        if raw is None or raw == "":
            return None
        if isinstance(raw, bool) or not isinstance(raw, str):
            raise BadTimeError("is not a timestamp")
        text = raw.strip()
        if len(text) > 100:
            raise BadTimeError(f"{shown(text)} is not a timestamp")
        if self.format in _SCALES or (self.format == "auto" and (isinstance(raw, JsonNumber) or _UNIX(text))):
            return _unix(text, _SCALES.get(self.format))
        return _plausible(self._calendar(text), text)

    def _calendar(self, text: str) -> datetime:
        try:
            if self.format in ("auto", "iso8601"):
                found = datetime.fromisoformat(text)
            else:
                found = datetime.strptime(text, self.format)  # noqa: DTZ007 - the zone is added below
            if found.tzinfo is None:
                if self.zone is None:
                    raise BadTimeError(f"{shown(text)} names no time zone; set `zone` in the mapping's time")
                found = found.replace(tzinfo=self.zone)
            return found.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            if isinstance(error, BadTimeError):
                raise
            raise BadTimeError(f"{shown(text)} is not a time of format {self.format}") from None


def _unix(text: str, scale: Decimal | None) -> datetime:
    if not _UNIX(text):
        raise BadTimeError(f"{shown(text)} is not a Unix time")
    return unix_time(Decimal(text), scale)


def unix_time(number: Decimal, scale: Decimal | None = None) -> datetime:
    """Convert a Unix time to UTC; without a scale, its magnitude distinguishes s, ms and us. Raises `BadTimeError`."""
    if scale is None:
        scale = Decimal(1) if number < 10**11 else Decimal("1e-3") if number < 10**14 else Decimal("1e-6")
    seconds = number * scale
    if abs(seconds) > 10**11:
        raise BadTimeError(f"{number} is not a Unix time of this era")
    return _plausible(_EPOCH + timedelta(microseconds=int(seconds * 1_000_000)), str(number))


def _plausible(timestamp: datetime, text: str) -> datetime:
    # Devices whose clock is not set report 1970, or the build date of their firmware.
    if not _EARLIEST <= timestamp < _LATEST:
        raise BadTimeError(f"{shown(text)} is {timestamp.year}: the sender's clock is not set")
    return timestamp


def parse_zone(text: str) -> tzinfo:
    """Return a zone by name (`UTC`, `Europe/Rome`) or offset (`+01:00`). Raises `BadKeyError`."""
    if text.upper() in ("UTC", "Z"):
        return UTC
    if match := _OFFSET(text):
        delta = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if delta < timedelta(hours=24):
            return timezone(-delta if match[1] == "-" else delta)
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise BadKeyError(
            because("zone_unknown", name=text),
            allowed="UTC, +01:00, or a name such as Europe/Rome (from the system's or the tzdata package)",
        ) from None


def time_format(name: str, zone: str | None) -> TimeFormat:
    """Return a format by name or strptime pattern. Raises `BadKeyError`."""
    if name not in FORMATS and "%" not in name:
        raise BadKeyError(
            because("not_a_time_format", name=name),
            allowed=", ".join(FORMATS) + ", or a strptime pattern (%Y-%m-%d %H:%M:%S)",
        )
    return TimeFormat(name, parse_zone(zone) if zone is not None else None)
