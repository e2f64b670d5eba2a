"""What mapping one message gives: readings, problems, and whether any mapping was for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.mapping.reading import Reading
from edge.mapping.settings import MappingLimits


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a message that could not be used."""

    mapping: str
    """Name of the mapping, with that of its pack."""
    what: str
    """The path, record or part of the message: `temperature`, `payload`, `time`, `unit`."""
    reason: str
    kept: bool = False
    """Whether the value was used all the same (a bad timestamp, an unknown unit)."""

    def __str__(self) -> str:
        return f"{self.mapping}: {self.what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Mapped:
    """The outcome of one message."""

    matched: bool
    """False: no mapping is for this message; it is unmapped."""
    mappings: tuple[str, ...] = ()
    """Names of the mappings that were applied."""
    readings: tuple[Reading, ...] = ()
    problems: tuple[Problem, ...] = ()
    ignored: bool = False
    """A mapping says that this message is of no interest."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An observation that is known before its first value (the paper's ADD_OBSERVATION)."""

    mapping: str
    topic: str
    observation: str
    unit: str | None = None
    location: str | None = None
    property: str | None = None
    sensor: str | None = None
    label: str | None = None
    comment: str | None = None


class FullError(Exception):
    """The message has given as many readings as it may."""


@dataclass(slots=True)
class Collector:
    """Gathers what one message gives, within the limits."""

    limits: MappingLimits
    readings: list[Reading] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def reading(self, reading: Reading, mapping: str) -> None:
        """Take a reading. Raises `FullError` beyond the limit."""
        if len(self.readings) >= self.limits.readings:
            self.problem(mapping, "payload", f"has more than {self.limits.readings} readings; the rest is dropped")
            raise FullError
        self.readings.append(reading)

    def problem(self, mapping: str, what: str, reason: str, *, kept: bool = False) -> None:
        """Take a problem; beyond the limit they are not told any more."""
        if len(self.problems) < self.limits.problems:
            self.problems.append(Problem(mapping, what, reason, kept))
