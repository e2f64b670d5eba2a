"""Faults of a rule for its author: line, key, reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleFault:
    """One fault in a rule."""

    reason: str
    key: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.key}: {self.reason}" if self.key else f"{place}{self.reason}"


class RuleError(ValueError):
    """A rule cannot be used; `faults` lists all its faults."""

    def __init__(self, faults: Sequence[RuleFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)
