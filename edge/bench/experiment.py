"""Options and reports of experiments: key performance indicators, as text and as JSON."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

import click

from edge.bench.city import CITY, SMALL_CITY, City

T = TypeVar("T")

Mode = Literal["sequential", "parallel"]

INDICATORS: Final = {
    "subscriptions": "active subscriptions (m)",
    "updates": "updates in a run (n)",
    "notifications": "notifications that a run sends",
    "ups": "updates a second: n / T_TOTAL",
    "sps": "subscriptions processed a second: m x Ups",
    "tps": "triples processed a second: triples an update x Sps",
    "nl_min_ms": "shortest time from the change of the graph to the notifications (NLmin)",
    "nl_max_ms": "longest such time (NLmax)",
    "lhr": "LUTT hit rate: % of updates x subscriptions whose patterns a change matches; of the profiles, not timed",
    "t_update_ms": "T_UPDATE: the text compiled, the graph changed, the change committed",
    "t_lutt_ms": "T_LUTT: the subscriptions found that the changes hit",
    "t_booster_ms": "T_BOOSTER: their results moved",
    "t_notify_ms": "T_NOTIFY: notifications written as the text that goes to the subscriber",
    "t_total_ms": "T_TOTAL: the sum of the four, over all updates of a run",
    "t_endpoint_ms": "T_ENDPOINT: the same updates on a bare Oxigraph store in memory",
    "e2e": "(T_TOTAL - T_ENDPOINT) / T_ENDPOINT: what subscriptions add to the endpoint",
}
"""Indicators by member name in JSON, with their meaning."""

_COUNTS: Final = ("subscriptions", "updates", "notifications")


class ExperimentError(Exception):
    """The experiment cannot run here, or its result is invalid; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """Options of an experiment."""

    runs: int = 5
    mode: Mode = "sequential"
    commit: bool = False
    """Whether each update is committed to disk before its notifications; otherwise the journal is in memory."""
    small: bool = False
    """Use a small city (a fourteenth of the triples) and short runs: for smoke tests, not for figures."""
    minutes: float = 20.0
    """Duration of a soak run."""
    attacks: tuple[str, ...] = ()
    """Attacks of `fairness`; empty means all."""
    peers: tuple[str, ...] = ()
    """Sides of `peers`, each as `NAME` or `NAME=DIRECTORY`; empty means the default ones."""
    cache: str = ""
    """Directory of installed peers; empty means the default one."""
    record: bool = False
    """Whether `work` writes its counts instead of comparing them."""

    @property
    def city(self) -> City:
        """Knowledge base of the experiment."""
        return SMALL_CITY if self.small else CITY


@dataclass(frozen=True, slots=True)
class Figure:
    """Figure specific to one experiment, with its value in each run."""

    name: str
    """Member name in JSON."""
    meaning: str
    values: Sequence[float]


@dataclass(slots=True)
class ExperimentReport:
    """Result of an experiment."""

    experiment: str
    mode: Mode
    indicators: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Values in each run of the `INDICATORS` that the experiment measures."""
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Additional lines below the table of the text report."""
    of: str = "run"
    """Unit of the repeated values, such as a run."""
    failure: str = ""
    """Reason why the result violates an expectation; empty if it does not."""

    def to_json(self) -> str:
        """Return one object with all indicators and, in `figures`, the experiment's own figures.

        Indicators that the experiment does not measure are null.
        """
        found: dict[str, object] = {"experiment": self.experiment, "mode": self.mode}
        for name in INDICATORS:
            values = self.indicators.get(name)
            found[name] = None if values is None else _median(name, values)
        if self.figures:
            found["figures"] = {figure.name: _median(figure.name, figure.values) for figure in self.figures}
        return json.dumps(found)

    def to_text(self) -> str:
        """Return a table with the median and the range of the runs."""
        runs = max([len(values) for values in self.indicators.values()] + [len(own.values) for own in self.figures])
        rows = [
            (name, self.indicators[name], meaning) for name, meaning in INDICATORS.items() if name in self.indicators
        ]
        rows += [(figure.name, figure.values, figure.meaning) for figure in self.figures]
        lines = [
            f"{self.experiment}, {self.mode}, median of {runs} {self.of}{'' if runs == 1 else 's'} (least to greatest)",
            "",
        ]
        width = max(len(name) for name, _, _ in rows)
        for name, values, meaning in rows:
            middle = _number(_median(name, values))
            spread = f"({_number(min(values))} to {_number(max(values))})" if min(values) != max(values) else ""
            lines.append(f"{name:<{width}} {middle:>10}  {spread:<22} {meaning}")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])


def steps(items: Sequence[T], label: str) -> Iterator[T]:
    """Yield the items, with a progress bar if standard error is a terminal."""
    with click.progressbar(items, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield from bar


def _median(name: str, values: Sequence[float]) -> float:
    # Counts are whole numbers; other figures have six significant digits.
    middle = statistics.median(values)
    return round(middle) if name in _COUNTS else float(f"{middle:.6g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
