"""Measurement of one running side: phases of readings at a rate, each checked."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import psutil

from edge.bench.peers.load import Publisher
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import PeerReading, Verdict, check, readings
from edge.bench.peers.side import Running, Side

_PROBES: Final = 100
"""Readings until the first result, at most."""
_ON_TIME: Final = 0.1
"""Greatest median latency of the last results at a rate without backlog (s)."""
_PACE: Final = 0.97
"""Smallest ratio of the actual rate of publications to the wanted one."""
_START_RATE: Final = 1_000.0
_ATTEMPTS: Final = 2
"""A disturbance by other work on the machine must not decide about a rate."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the phases."""

    burst: int = 20_000
    slow: int = 2_000
    """Readings at 200 a second."""
    fast: int = 5_000
    """Readings at 1,000 a second."""
    seconds: float = 2.0
    """Duration of one attempt at a rate."""
    highest: float = 64_000
    """Greatest rate that is tried."""
    warm_up: int = 1_000
    halvings: int = 3
    """Steps from a factor of 2 towards the best rate; three leave an uncertainty of 9 %."""


SMALL: Final = Scale(burst=300, slow=40, fast=100, seconds=0.2, warm_up=100, highest=2_000, halvings=0)


@dataclass(slots=True)
class Measured:
    """Figures of one side under one load."""

    version: str = ""
    best_rate: float = 0.0
    """Highest rate of readings a second without loss and without backlog."""
    burst_lost_percent: float = 0.0
    cpu_200_us: float = 0.0
    cpu_1000_us: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    rss_mb: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Phase:
    """Outcome of one phase."""

    verdict: Verdict
    latencies: list[float]
    """Of each result, in the order of arrival (s)."""
    cpu_us: float
    """CPU time of the side for each reading."""
    published_rate: float


class Measurement:
    """Sends phases of readings to a running side."""

    def __init__(self, side: Side, running: Running, publisher: Publisher, share: int) -> None:
        """Measure with readings of which one in `share` passes."""
        self._side, self._running, self._publisher = side, running, publisher
        self._readings: Iterator[PeerReading] = readings(share)
        self._process = psutil.Process(running.pid)
        self._bound = ""
        """Reason why the best rate is a lower bound; empty if the side itself did not follow a greater rate."""

    def measure(self, scale: Scale) -> Measured:
        """Run all phases. The memory is measured last, after the burst."""
        self._warm_up(scale.warm_up)
        found = Measured(self._running.version)
        slow = self._checked("200/s", found, scale.slow, 200)
        found.cpu_200_us = slow.cpu_us
        found.p50_ms, found.p99_ms = _percentiles(slow.latencies)
        found.cpu_1000_us = self._checked("1,000/s", found, scale.fast, 1_000).cpu_us
        found.best_rate = self._best_rate(scale)
        if self._bound:
            found.problems.append(f"the best rate is at least the given one: {self._bound}")
        burst = self._phase(scale.burst, None).verdict
        found.burst_lost_percent = 100 * burst.lost / burst.expected
        if burst.repeated or burst.disordered or burst.wrong:
            found.problems.append(f"burst: {burst}")
        found.rss_mb = self._process.memory_info().rss / 1e6
        return found

    def _warm_up(self, count: int) -> None:
        """Send readings until results arrive, and then `count` more."""
        for reading in islice(self._readings, _PROBES):
            self._publisher.publish([reading], None, self._running.receiver)
            self._publisher.settle(self._running.receiver, lambda: True)
            if self._new_results():
                break
        else:
            raise PeerError("it delivers no results")
        self._phase(count, 500)

    def _checked(self, name: str, found: Measured, count: int, rate: float) -> Phase:
        phase = self._phase(count, rate)
        if not phase.verdict.correct:
            found.problems.append(f"at {name}: {phase.verdict}")
        return phase

    def _best_rate(self, scale: Scale) -> float:
        """Double the rate until the side does not follow, and then halve the interval."""
        best, rate = 0.0, min(_START_RATE, scale.highest)
        while self._keeps_up(rate, scale):
            best, rate = rate, rate * 2
            if rate > scale.highest:
                self._bound = "no greater one was tried"
                return best
        while not best:  # slower than the first rate
            rate /= 2
            if rate < 1:
                return 0.0
            best = rate if self._keeps_up(rate, scale) else 0.0
        low, high = best, 2 * best
        for _ in range(scale.halvings):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self._keeps_up(middle, scale) else (low, middle)
        return low

    def _keeps_up(self, rate: float, scale: Scale) -> bool:
        """Return whether the side follows a rate."""
        for _ in range(_ATTEMPTS):
            phase = self._phase(max(20, int(rate * scale.seconds)), rate)
            paced = phase.published_rate >= _PACE * rate
            last = phase.latencies[-max(1, len(phase.latencies) // 5) :]
            if paced and phase.verdict.correct and statistics.median(last or [0.0]) <= _ON_TIME:
                return True
            # The last rate that failed is the upper bound of the result.
            reason = f"publisher and broker reached only {phase.published_rate:,.0f}/s of {rate:,.0f}/s"
            self._bound = "" if paced else reason
        return False

    def _phase(self, count: int, rate: float | None) -> Phase:
        self._new_results()
        batch = list(islice(self._readings, count))
        expected = [reading.temperature for reading in batch if reading.passes]
        arrived: list[tuple[float, int]] = []

        def complete() -> bool:
            arrived.extend(self._new_results())
            return len(arrived) >= len(expected)

        before = self._cpu_seconds()
        sent = self._publisher.publish(batch, rate, self._running.receiver)
        self._publisher.settle(self._running.receiver, complete)
        complete()
        spent = self._cpu_seconds() - before
        latencies = [when - sent.times[value] for when, value in arrived if value in sent.times]
        verdict = check(expected, [value for _, value in arrived])
        published_rate = (count - 1) / sent.seconds if sent.seconds else float("inf")
        return Phase(verdict, latencies, 1e6 * spent / count, published_rate)

    def _new_results(self) -> list[tuple[float, int]]:
        """Decode the messages since the last call: time of arrival and temperature of each result."""
        messages = self._running.receiver.messages
        new = [(when, value) for when, message in messages for value in self._side.temperatures(message)]
        messages.clear()
        return new

    def _cpu_seconds(self) -> float:
        """CPU time of the process of the side, with its child processes."""
        own = self._process.cpu_times()
        children = [child.cpu_times() for child in self._process.children(recursive=True)]
        return own.user + own.system + sum(times.user + times.system for times in children)


def _percentiles(latencies: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile in milliseconds; infinite without results."""
    if len(latencies) < 2:
        return float("inf"), float("inf")
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    return 1_000 * cuts[49], 1_000 * cuts[98]
