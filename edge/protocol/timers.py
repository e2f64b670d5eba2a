"""Delayed updates as clients see them, on every transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

TimerState = Literal["pending", "done", "unchanged", "failed", "missed", "cancelled"]
"""What became of a delayed update. "unchanged": it ran and changed nothing. "missed": it would have run too late."""

DEFAULT_LISTED: Final = 100
MAX_LISTED: Final = 1000
"""Delayed updates in one answer, by default and at the most."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A delayed update that is stored and will be run. `at`: microseconds since 1970, as far as can be told now."""

    id: str
    at: int
    replaced: bool
    """Whether it took the place of one that had the same id."""

    def to_message(self) -> dict[str, object]:
        """As a JSON object."""
        return {"id": self.id, "at": self.at, "replaced": self.replaced}


@dataclass(frozen=True, slots=True)
class Timer:
    """A delayed update. Times are microseconds since 1970."""

    id: str
    state: TimerState
    at: int
    """When it is to run, or was."""
    scheduled: int
    """When it was given."""
    sparql: str | None = None
    """Its text, while it is pending."""
    client: str = ""
    """Who gave it; empty: given without security."""
    finished: int | None = None
    added: int = 0
    removed: int = 0
    error: str | None = None
    error_description: str | None = None

    def to_message(self) -> dict[str, object]:
        """As a JSON object, without the members that say nothing."""
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
