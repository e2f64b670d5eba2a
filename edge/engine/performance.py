"""Performance model of the SUB Engine: cost of an update by phase (SPS Architecture, section IV.B).

T_TOTAL = T_UPDATE + T_LUTT + T_BOOSTER + T_NOTIFY. The statistics are running sums, so they take the same few hundred
bytes however long the gateway runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from threading import Lock
from time import perf_counter_ns
from typing import Final

clock: Final = perf_counter_ns
"""Nanoseconds of a monotonic clock, from an arbitrary start."""

_FOLD: Final = 64
"""Updates that are added to the statistics together."""


@dataclass(slots=True)
class Statistics:
    """Running count, mean, standard deviation, minimum and maximum of values in nanoseconds."""

    count: int = 0
    total: int = 0
    squares: float = 0.0
    """Sum of the squares."""
    least: int = 0
    greatest: int = 0

    def add(self, values: Sequence[int]) -> None:
        """Add values."""
        if values:
            least, greatest = min(values), max(values)
            self.least = min(self.least, least) if self.count else least
            self.greatest = max(self.greatest, greatest)
            self.count += len(values)
            self.total += sum(values)
            self.squares += math.hypot(*values) ** 2  # five times as fast as one multiplication for each value

    @property
    def mean(self) -> float:
        """Mean of the values; 0 without values."""
        return self.total / self.count if self.count else 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of the sample; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        # Rounding can make the difference of two large sums slightly negative.
        return math.sqrt(max(0.0, self.squares - self.total * self.mean) / (self.count - 1))


Spent = tuple[int, int, int, int]
"""Cost of an update before its notifications: T_UPDATE, T_LUTT, T_BOOSTER in nanoseconds, and number of LUTT hits."""

UNSPENT: Final[Spent] = (0, 0, 0, 0)


@dataclass(slots=True)
class Figures:
    """Statistics of each phase over all updates since the last reset."""

    update: Statistics = field(default_factory=Statistics)
    lutt: Statistics = field(default_factory=Statistics)
    booster: Statistics = field(default_factory=Statistics)
    notify: Statistics = field(default_factory=Statistics)
    total: Statistics = field(default_factory=Statistics)
    latency: Statistics = field(default_factory=Statistics)
    """Time from the change of the graph to the last notification, of updates with notifications (NLmin, NLmax)."""
    hits: int = 0
    """Number of LUTT hits. Subscriptions that are evaluated together count as one."""
    notifications: int = 0


class PerformanceModel:
    """Cost of the updates so far. The writer thread records it; any thread may read it.

    T_UPDATE is the time to change the graph and to determine the exact change: compilation, evaluation of WHERE, and
    instantiation of the templates. T_LUTT finds the affected SPUs, T_BOOSTER updates their results, and T_NOTIFY passes
    the notifications to the sinks.
    """

    def __init__(self) -> None:
        self._folding = Lock()
        self.begin()
        self.reset()

    def reset(self) -> None:
        """Remove all statistics."""
        self._figures = Figures()
        self._recent: deque[tuple[int, ...]] = deque()

    def begin(self) -> None:
        """Start the measurement of an update."""
        self._lutt = self._booster = self._hits = 0

    def note_lutt(self, spent: int, hits: int) -> None:
        """Add nanoseconds and hits to T_LUTT of the current update."""
        self._lutt += spent
        self._hits += hits

    def note_booster(self, spent: int) -> None:
        """Add nanoseconds to T_BOOSTER of the current update."""
        self._booster += spent

    def executed(self, spent: int) -> Spent:
        """Split the `spent` nanoseconds of an update, including its activations, into phases."""
        lutt, booster = self._lutt, self._booster
        return spent - lutt - booster, lutt, booster, self._hits

    def published(self, spent: Spent, notify: int, notifications: int) -> None:
        """Count a finished update: its cost so far, nanoseconds of T_NOTIFY, and number of notifications."""
        update, lutt, booster, hits = spent
        since = lutt + booster + notify
        self._recent.append((update, lutt, booster, notify, update + since, since, hits, notifications))
        if len(self._recent) >= _FOLD:
            self._fold()

    def figures(self) -> Figures:
        """Return the statistics of all finished updates. The object changes with later updates."""
        self._fold()
        return self._figures

    def _fold(self) -> None:
        """Add the recent updates to the statistics phase by phase: three times as fast as update by update."""
        with self._folding:
            # As many as there are now: the writer may append more meanwhile.
            recent = [self._recent.popleft() for _ in range(len(self._recent))]
            if not recent:
                return
            figures = self._figures
            update, lutt, booster, notify, total, since, hits, notifications = zip(*recent, strict=True)
            figures.update.add(update)
            figures.lutt.add(lutt)
            figures.booster.add(booster)
            figures.notify.add(notify)
            figures.total.add(total)
            figures.latency.add(tuple(compress(since, notifications)))
            figures.hits += sum(hits)
            figures.notifications += sum(notifications)
