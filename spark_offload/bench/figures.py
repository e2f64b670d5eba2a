"""Figures of the measurements with their goals, as text and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryFigure:
    """A figure with its value in each run."""

    name: str
    """Member name in JSON."""
    meaning: str
    """Description with the unit."""
    values: Sequence[float]
    goal: float | None = None
    """Upper bound for the median; None: the figure is informational."""

    @property
    def median(self) -> float:
        """Median of all runs."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without a goal."""
        return None if self.goal is None else self.median <= self.goal


def to_json(figures: Sequence[HistoryFigure]) -> str:
    """Return one JSON object with the figures by name."""
    found = {
        figure.name: {
            "median": _rounded(figure.median),
            "values": [_rounded(value) for value in figure.values],
            "goal": figure.goal,
            "met": figure.met,
        }
        for figure in figures
    }
    return json.dumps(found)


def to_text(figures: Sequence[HistoryFigure]) -> str:
    """Return a text table with the median, the range and the goal of each figure."""
    width = max(len(figure.name) for figure in figures)
    lines = [f"{'':<{width}} {'median':>9}  {'least to greatest':<20} {'goal':>5}  {'met':<4}"]
    for figure in figures:
        spread = f"{_number(min(figure.values))} to {_number(max(figure.values))}"
        goal = "" if figure.goal is None else _number(figure.goal)
        met = {None: "", True: "yes", False: "no"}[figure.met]
        lines.append(
            f"{figure.name:<{width}} {_number(figure.median):>9}  {spread:<20} {goal:>5}  {met:<4} {figure.meaning}"
        )
    return "\n".join(lines)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
