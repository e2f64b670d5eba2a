"""Errors in profiles, and in requests to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file. Lines and columns count from 1; 0: the file as a whole."""

    file: str
    line: int
    column: int
    reason: str

    def __str__(self) -> str:
        """`FILE:LINE:COLUMN: reason`, the format of compilers."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.reason}"


class ProfileError(ValueError):
    """A profile cannot be used. `problems` has all problems; the attributes describe the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
        first = problems[0]
        self.file = first.file
        self.line = first.line or None
        self.column = first.column or None
        self.reason = first.reason


class UnknownEntry(KeyError):
    """The profile has no such update or query; the message names the existing ones."""

    def __init__(self, profile: str, kind: str, name: str, known: Iterable[str]) -> None:
        listed = ", ".join(sorted(known)) or "none"
        super().__init__(f'{profile} has no {kind} "{name}"; there are: {listed}')

    def __str__(self) -> str:
        return str(self.args[0])


class BindingError(ValueError):
    """A forced binding is missing, unknown, or has a value of the wrong type; the message names it."""
