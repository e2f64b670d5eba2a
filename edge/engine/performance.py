"""The performance model of the SUB Engine: what an update costs, phase by phase (SPS Architecture, section IV.B).

T_TOTAL = T_UPDATE + T_LUTT + T_BOOSTER + T_NOTIFY. Running figures only: however long the gateway runs, they take the
same few hundred bytes.
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
"""Updates that are counted together."""


@dataclass(slots=True)
class Statistics:
    """Count, mean, standard deviation, least and greatest of values that are not kept. Nanoseconds."""

    count: int = 0
    total: int = 0
    squares: float = 0.0
    """Sum of the squares."""
    least: int = 0
    greatest: int = 0

    def add(self, values: Sequence[int]) -> None:
        """Count more values."""
        if values:
            least, greatest = min(values), max(values)
            self.least = min(self.least, least) if self.count else least
            self.greatest = max(self.greatest, greatest)
            self.count += len(values)
            self.total += sum(values)
            self.squares += math.hypot(*values) ** 2  # a fifth of what multiplying them one by one costs

    @property
    def mean(self) -> float:
        """Mean of the values; 0 while there are none."""
        return self.total / self.count if self.count else 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of the sample; 0 while there are fewer than two values."""
        if self.count < 2:
            return 0.0
        return math.sqrt(max(0.0, self.squares - self.total * self.mean) / (self.count - 1))


Spent = tuple[int, int, int, int]
"""What an update has cost until its subscribers are to be told: T_UPDATE, T_LUTT, T_BOOSTER in nanoseconds, and how
many entries of the LUTT were hit."""

UNSPENT: Final[Spent] = (0, 0, 0, 0)


@dataclass(slots=True)
class Figures:
    """The phases of all updates since the model began."""

    update: Statistics = field(default_factory=Statistics)
    lutt: Statistics = field(default_factory=Statistics)
    booster: Statistics = field(default_factory=Statistics)
    notify: Statistics = field(default_factory=Statistics)
    total: Statistics = field(default_factory=Statistics)
    latency: Statistics = field(default_factory=Statistics)
    """From the change of the graph to the last subscriber, of the updates that notified any (NLmin, NLmax)."""
    hits: int = 0
    """Entries of the LUTT that were hit; subscriptions that are evaluated together are one."""
    notifications: int = 0


class PerformanceModel:
    """What the updates so far have cost. The thread that updates writes it, any thread may read it.

    T_UPDATE is what it takes to change the graph and to know the exact change: compiling the text, evaluating WHERE,
    applying the templates. T_LUTT finds the SPUs that the change hits, T_BOOSTER moves their results, T_NOTIFY hands
    the notifications to the subscribers' sinks.
    """

    def __init__(self) -> None:
        self._folding = Lock()
        self.begin()
        self.reset()

    def reset(self) -> None:
        """Forget all updates so far."""
        self._figures = Figures()
        self._recent: deque[tuple[int, ...]] = deque()

    def begin(self) -> None:
        """An update begins to be executed."""
        self._lutt = self._booster = self._hits = 0

    def note_lutt(self, spent: int, hits: int) -> None:
        """Add nanoseconds to T_LUTT of the update that is being executed, and the entries it hit."""
        self._lutt += spent
        self._hits += hits

    def note_booster(self, spent: int) -> None:
        """Add nanoseconds to T_BOOSTER of the update that is being executed."""
        self._booster += spent

    def executed(self, spent: int) -> Spent:
        """Tell the phases of an update apart that took `spent` nanoseconds to execute, activation included."""
        lutt, booster = self._lutt, self._booster
        return spent - lutt - booster, lutt, booster, self._hits

    def published(self, spent: Spent, notify: int, notifications: int) -> None:
        """Count an update that is over: what it had cost, nanoseconds of T_NOTIFY, notifications sent."""
        update, lutt, booster, hits = spent
        since = lutt + booster + notify
        self._recent.append((update, lutt, booster, notify, update + since, since, hits, notifications))
        if len(self._recent) >= _FOLD:
            self._fold()

    def figures(self) -> Figures:
        """The figures of all updates that are over, which go on with every update."""
        self._fold()
        return self._figures

    def _fold(self) -> None:
        """Take the recent updates into the figures, a phase at a time: that costs a third of counting one by one."""
        with self._folding:
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
