"""Findings of a parsed profile, without duplicates."""

from __future__ import annotations

from edge.jsap.errors import Problem


class Findings:
    """Problems and notes in the order of their discovery."""

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
        """Add a problem, which makes the profile unusable."""
        self._problems[problem] = None

    def note(self, note: Problem) -> None:
        """Add a note about an accepted but suspicious item."""
        self._notes[note] = None


def _sorted(found: dict[Problem, None]) -> tuple[Problem, ...]:
    return tuple(sorted(found, key=lambda problem: (problem.file, problem.line, problem.column)))
