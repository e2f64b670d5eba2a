"""Result of mapping one message: readings, problems, and whether a mapping matched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from edge.mapping.reading import Reading
from edge.mapping.settings import MappingLimits


@dataclass(frozen=True, slots=True)
class MessageProblem:
    """A part of a message that could not be used."""

    mapping: str
    """Name of the mapping with that of its pack."""
    what: str
    """Path, record or part of the message: `temperature`, `payload`, `time`, `unit`."""
    reason: str
    kept: bool = False
    """Whether the value was used anyway (an invalid timestamp, an unknown unit)."""

    def __str__(self) -> str:
        return f"{self.mapping}: {self.what}: {self.reason}"


class Mapped(NamedTuple):
    """Result of one message."""

    matched: bool
    """False: no mapping matches the message, so it is unmapped."""
    mappings: tuple[str, ...] = ()
    """Names of the applied mappings."""
    readings: tuple[Reading, ...] = ()
    problems: tuple[MessageProblem, ...] = ()
    ignored: bool = False
    """Whether a mapping ignores this message explicitly."""


@dataclass(frozen=True, slots=True)
class Declared:
    """An observation that is declared before its first value (the paper's ADD_OBSERVATION)."""

    mapping: str
    topic: str
    observation: str
    unit: str | None = None
    location: str | None = None
    property: str | None = None
    sensor: str | None = None
    label: str | None = None
    comment: str | None = None
    sensor_label: str | None = None


class FullError(Exception):
    """The message has reached the maximum number of readings."""


@dataclass(slots=True)
class Collector:
    """Collects the result of one message within the limits."""

    limits: MappingLimits
    readings: list[Reading] = field(default_factory=list)
    problems: list[MessageProblem] = field(default_factory=list)

    def reading(self, reading: Reading, mapping: str) -> None:
        """Add a reading. Raises `FullError` beyond the limit."""
        if len(self.readings) >= self.limits.readings:
            self.problem(mapping, "payload", f"has more than {self.limits.readings} readings; the rest is dropped")
            raise FullError
        self.readings.append(reading)

    def problem(self, mapping: str, what: str, reason: str, *, kept: bool = False) -> None:
        """Add a problem; problems beyond the limit are not reported."""
        # A small payload can have a problem at each of its values, and each problem is logged or returned.
        if len(self.problems) < self.limits.problems:
            self.problems.append(MessageProblem(mapping, what, reason, kept))
