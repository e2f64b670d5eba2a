"""Answers of a broker to updates and requests about timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from edge.client.errors import BadAnswer

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Updated:
    """Outcome of an update: numbers of added and removed triples; None if the broker does not report them."""

    added: int | None = None
    removed: int | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Updated:
        """Parse the answer of a gateway, or of a broker with another format."""
        added, removed = answer.get("added"), answer.get("removed")
        return cls(added if isinstance(added, int) else None, removed if isinstance(removed, int) else None)


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Confirmation of a delayed update: its id, its time, and whether it replaced one with the same id."""

    id: str
    at: datetime
    replaced: bool

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Scheduled:
        """Parse the member `scheduled`. Raises `BadAnswer`."""
        try:
            return cls(str(answer["id"]), from_microseconds(answer["at"]), bool(answer.get("replaced", False)))
        except (KeyError, TypeError, OverflowError):
            raise BadAnswer(f"not a scheduled update: {answer!r:.200}") from None


@dataclass(frozen=True, slots=True)
class Timer:
    """A delayed update and its outcome. None: not reported, or not yet known."""

    id: str
    state: str
    """pending, done, unchanged, failed, missed or cancelled."""
    at: datetime
    scheduled: datetime
    sparql: str | None = None
    """Text of the update while it is pending."""
    finished: datetime | None = None
    added: int | None = None
    removed: int | None = None
    error: str | None = None
    error_description: str | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Timer:
        """Parse a gateway's description. Raises `BadAnswer`."""
        try:
            finished = answer.get("finished")
            return cls(
                id=str(answer["id"]),
                state=str(answer["state"]),
                at=from_microseconds(answer["at"]),
                scheduled=from_microseconds(answer["scheduled"]),
                sparql=answer.get("sparql"),
                finished=None if finished is None else from_microseconds(finished),
                added=answer.get("added"),
                removed=answer.get("removed"),
                error=answer.get("error"),
                error_description=answer.get("error_description"),
            )
        except (KeyError, TypeError, OverflowError):
            raise BadAnswer(f"not a timer: {answer!r:.200}") from None

    @classmethod
    def several(cls, answer: Mapping[str, Any]) -> list[Timer]:
        """Parse the member `timers`. Raises `BadAnswer`."""
        found = answer.get("timers")
        if not isinstance(found, list) or not all(isinstance(timer, dict) for timer in found):
            raise BadAnswer(f'no "timers" in {answer!r:.200}')
        return [cls.of(timer) for timer in found]


def when(delay: timedelta | None, at: datetime | None, id: str | None) -> dict[str, Any]:  # noqa: A002 - the protocol's name
    """Return the members of an update request that schedule it, or an empty dictionary. Raises `ValueError`."""
    if delay is not None and at is not None:
        raise ValueError("an update has a delay or a time, not both")
    if delay is None and at is None:
        if id is not None:
            raise ValueError("only a scheduled update has an id: give delay or at")
        return {}
    named = {} if id is None else {"id": id}
    return {**({"at": to_microseconds(at)} if at is not None else {"delay": _duration(delay or timedelta())}), **named}


def to_microseconds(timestamp: datetime) -> int:
    """Return microseconds since 1970. Raises `ValueError` for a time without zone.

    Integer arithmetic: a float of seconds, as of `timestamp()`, does not represent all microseconds exactly.
    """
    if timestamp.tzinfo is None:
        raise ValueError(f"{timestamp.isoformat()} has no time zone, so the instant is not known")
    return (timestamp - _EPOCH) // _MICROSECOND


def from_microseconds(value: int) -> datetime:
    """Return the time in UTC."""
    return _EPOCH + value * _MICROSECOND


def _duration(delay: timedelta) -> str:
    """Return an ISO 8601 duration. Raises `ValueError` for a negative one."""
    if delay < timedelta():
        raise ValueError("a delay is not negative")
    seconds, microseconds = divmod(delay // _MICROSECOND, 1_000_000)
    return f"PT{seconds}.{microseconds:06}".rstrip("0").rstrip(".") + "S" if microseconds else f"PT{seconds}S"
