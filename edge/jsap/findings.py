"""What was found while a profile was read: all of it, each thing once."""

from __future__ import annotations

from edge.jsap.errors import Problem


class Findings:
    """Problems and notes in the order in which they were found."""

    def __init__(self) -> None:
        self._problems: dict[Problem, None] = {}
        self._notes: dict[Problem, None] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """By file, line and column."""
        return _sorted(self._problems)

    @property
    def notes(self) -> tuple[Problem, ...]:
        """By file, line and column."""
        return _sorted(self._notes)

    def problem(self, problem: Problem) -> None:
        """The profile cannot be used because of this."""
        self._problems[problem] = None

    def note(self, note: Problem) -> None:
        """This is accepted, and may be meant otherwise."""
        self._notes[note] = None


def _sorted(found: dict[Problem, None]) -> tuple[Problem, ...]:
    return tuple(sorted(found, key=lambda problem: (problem.file, problem.line, problem.column)))
