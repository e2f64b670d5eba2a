"""Delayed updates in the form that clients see on every transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TimerState = Literal["pending", "done", "unchanged", "failed", "missed", "cancelled"]
"""Outcome of a delayed update. "unchanged": it ran and changed nothing. "missed": it was too late to run it."""

DEFAULT_LISTED: Final = 100
MAX_LISTED: Final = 1000
"""Default and maximum number of delayed updates in one response."""


@dataclass(frozen=True, slots=True)
class TimerConfirmation:
    """Confirmation of a stored delayed update. `at`: its expected time in microseconds since 1970."""

    id: str
    at: int
    replaced: bool
    """Whether it replaced a delayed update with the same id."""

    def to_message(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {"id": self.id, "at": self.at, "replaced": self.replaced}


@dataclass(frozen=True, slots=True)
class TimerRecord:
    """A delayed update. Times are in microseconds since 1970."""

    id: str
    state: TimerState
    at: int
    """Time at which it runs or ran."""
    scheduled: int
    """Time at which the client sent it."""
    sparql: str | None = None
    """Its text while it is pending."""
    client: str = ""
    """Client that sent it; empty without security."""
    finished: int | None = None
    added: int = 0
    removed: int = 0
    error: str | None = None
    error_description: str | None = None

    def to_message(self) -> dict[str, object]:
        """Return it as a JSON object, without empty members."""
        message: dict[str, object] = {"id": self.id, "state": self.state, "at": self.at, "scheduled": self.scheduled}
        if self.client:
            message["client"] = self.client
        if self.sparql is not None:
            message["sparql"] = self.sparql
        if self.finished is not None:
            message |= {"finished": self.finished, "added": self.added, "removed": self.removed}
        if self.error is not None:
            message |= {"error": self.error, "error_description": self.error_description}
        return message
