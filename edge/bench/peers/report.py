"""Report of the comparison: a table for each load, ratios, problems."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edge.bench.experiment import ExperimentReport
from edge.bench.peers.measurement import Measured
from edge.bench.peers.side import Side

FIGURES: Final = {
    "best_rate": "best/s",
    "burst_lost_percent": "burst lost %",
    "cpu_200_us": "CPU us at 200/s",
    "cpu_1000_us": "CPU us at 1,000/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rss_mb": "RSS MB",
}
"""Figures by member name, with the heading of their column."""
_OURS: Final = "gateway"
_EXPLANATION: Final = (
    "best/s: readings a second without loss and backlog. burst lost: of readings sent as fast as possible.",
    "CPU: microseconds of the side for each reading. p50, p99: from publication to result at 200/s. RSS: at the end.",
    "gateway / PEER: below 1 our figure is the smaller one, which is better except for best/s.",
)


@dataclass(frozen=True, slots=True)
class LoadKind:
    """Kind of readings."""

    qos: int
    share: int
    """One reading in this number passes the rule."""

    def __str__(self) -> str:
        passing = "every reading passes" if self.share == 1 else f"one reading in {self.share} passes"
        return f"QoS {self.qos}, {passing}"

    @property
    def key(self) -> str:
        """Name in JSON."""
        return f"qos{self.qos}_1_in_{self.share}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One side under one load."""

    side: Side
    load: LoadKind


@dataclass(slots=True)
class PeersReport(ExperimentReport):
    """Figures of all sides."""

    sides: Sequence[Side] = ()
    cells: Mapping[Cell, Measured] = field(default_factory=dict)

    def failed(self, side: Side, reason: str) -> None:
        """Record that a side could not be measured; the other figures are valid."""
        self.failure = "\n".join([*self.failure.splitlines(), f"{side.name}: {reason}"])

    def to_json(self) -> str:
        """Return one object with the figures of each side under each load."""
        found: dict[str, Any] = {"experiment": self.experiment, "sides": {}, "failure": self.failure}
        for cell, measured in self.cells.items():
            side = found["sides"].setdefault(
                cell.side.name, {"version": measured.version, "results": cell.side.results, "loads": {}}
            )
            figures = {name: float(f"{getattr(measured, name):.6g}") for name in FIGURES}
            side["loads"][cell.load.key] = {**figures, "problems": measured.problems}
        return json.dumps(found)

    def to_text(self) -> str:
        """Return a table for each load."""
        lines = [line for load in dict.fromkeys(cell.load for cell in self.cells) for line in self._table(load)]
        notes = [note for side in self.sides for note in side.notes]
        return "\n".join([*lines, *_EXPLANATION, *dict.fromkeys(notes), *self.notes])

    def _table(self, load: LoadKind) -> list[str]:
        measured = {cell.side: value for cell, value in self.cells.items() if cell.load == load}
        rows = [["", "results", *FIGURES.values()]]
        for side, value in measured.items():
            rows.append(
                [f"{side.name} {value.version}", side.results, *(_number(getattr(value, name)) for name in FIGURES)]
            )
        ours = next((value for side, value in measured.items() if side.name == _OURS), None)
        for side, value in measured.items():
            if ours is not None and value is not ours:
                rows.append([f"{_OURS} / {side.name}", "", *(_ratio(name, ours, value) for name in FIGURES)])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            "  ".join(
                text.ljust(width) if column < 2 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        problems = [f"! {side.name}: {problem}" for side, value in measured.items() for problem in value.problems]
        return [str(load), *table, *problems, ""]


def _ratio(name: str, ours: Measured, peer: Measured) -> str:
    """Return ours / peer; empty for figures of which a ratio says nothing."""
    divisor = getattr(peer, name)
    return "" if name == "burst_lost_percent" or not divisor else f"{getattr(ours, name) / divisor:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"
