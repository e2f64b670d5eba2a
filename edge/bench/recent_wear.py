"""Bytes that the recent history writes for each value, for different numbers and rates of sensors.

The history is the real one on a real disk, with a clock that the experiment advances. The sensors are temperatures with
one decimal. The experiment counts the bytes that the kernel sent to the disk for this process (`/proc/self/io`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from edge.bench.experiment import ExperimentError
from edge.engine.clock import SimulatedClock
from edge.protocol.series import SeriesRequest
from edge.recent.recent_history import RecentHistory
from edge.recent.series import MICROSECONDS, SeriesKey
from edge.recent.settings import RecentSettings

_SECOND: Final = 1_000_000
_BEGIN: Final = 1_790_000_000 * _SECOND
_HOURS: Final = 3


class Sensors(NamedTuple):
    """A number of sensors with the same rate."""

    name: str
    number: int
    period: float
    """Seconds between two values of a sensor."""
    jitter: float
    """Standard deviation of this time, in seconds."""

    @property
    def meaning(self) -> str:
        """Description of the figure."""
        rate = f"one value each {self.period:g} s +- {1000 * self.jitter:g} ms"
        return f"bytes for a recent value, {self.number} sensors, {rate}"


SENSORS: Final = (
    Sensors("recent_fast", 250, 1, 0.02),
    Sensors("recent_usual", 100, 1, 0.005),
    Sensors("recent_jitter", 100, 1, 0.02),
    Sensors("recent_slow", 500, 60, 0.02),
)


def written(directory: Path, sensors: Sensors, *, small: bool = False) -> float:
    """Return the bytes written for a value, files of some hours included. Raises `ExperimentError`."""
    clock = SimulatedClock(_BEGIN)
    settings = RecentSettings(seal_interval=600.0) if small else RecentSettings()
    history = RecentHistory(directory, settings, clock)
    history.open()
    os.sync()
    before, values = _bytes(), 0
    for seconds, key, value in _values(sensors, _HOURS * 3600 // (10 if small else 1)):
        while seconds * _SECOND + _BEGIN > clock.at + settings.flush_interval * _SECOND:
            clock.at += int(settings.flush_interval * _SECOND)
            history.work()
        history.add(key, int(_BEGIN + seconds * _SECOND) // MICROSECONDS, value)
        values += 1
    history.work()
    os.sync()
    if history.failing:
        raise ExperimentError(f"the recent history cannot be written: {history.failing}")
    request = SeriesRequest((_key(0).observation,), 0, 2 * _BEGIN, 1)
    (found,) = history.read(request, lambda graph: True)
    if found.rows[0].samples != values // sensors.number:
        raise ExperimentError(f"of {values // sensors.number} values of a sensor {found.rows[0].samples} were recorded")
    return (_bytes() - before) / values


def _values(sensors: Sensors, seconds: int) -> Iterator[tuple[float, SeriesKey, float]]:
    """Yield time, series and value, approximately in the order of time."""
    chance = random.Random(7)
    keys = [_key(number) for number in range(sensors.number)]
    level = [20.0] * sensors.number
    at = [chance.random() * sensors.period for _ in keys]
    for _ in range(int(seconds / sensors.period)):
        for number, key in enumerate(keys):
            level[number] = round(level[number] + chance.choice((-0.1, 0, 0, 0, 0.1)), 1)
            yield at[number], key, level[number]
            at[number] += max(0.0, chance.gauss(sensors.period, sensors.jitter))


def _key(number: int) -> SeriesKey:
    return SeriesKey("", f"http://example.org/building/sensor-{number}/temperature", "number")


def _bytes() -> int:
    try:
        return int(psutil.Process().io_counters().write_bytes)
    except AttributeError:  # psutil has `io_counters` on some systems only
        raise ExperimentError("this system does not tell what a process writes") from None
