"""Which values of the recent history are elements of the stream of observations already, so that none counts twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import pyoxigraph as ox

from edge.streams.model import Element
from edge.streams.observations import Elements, value_of

_TICK: Final = 10_000
"""Resolution of times in the recent history, in microseconds."""
_LATEST: Final = 4_102_444_800_000_000
"""The year 2100, after which times are not valid."""
_DELAY: Final = 2_000_000
"""Microseconds from the commit of a value, which is its time without a time of its own, to the arrival of its element.
Usually these are milliseconds."""
_RECENT: Final = 60_000_000
"""Microseconds from the measurement of a value to its arrival, beyond which it is not noted."""


def recorded_time(stamp: ox.Literal) -> int | None:
    """Return the time under which the recent history records a value with this time, in microseconds; None: under that
    of its commit, because this one is not valid.
    """
    try:
        time = datetime.fromisoformat(stamp.value)
        # The history computes this number: another way of rounding would give other times.
        found = None if time.tzinfo is None else int(time.timestamp() * (1_000_000 // _TICK)) * _TICK
    except (ValueError, OverflowError):
        return None
    return found if found is not None and 0 <= found < _LATEST else None


class FilledValues:
    """Values with which a window has begun, and whose elements may still be on the way to the stream."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], list[ox.Literal]] = {}
        self._until = 0

    def note(self, past: Elements, now: int) -> None:
        """Note the values with which a window begins now."""
        self._values.clear()
        self._until = now + _DELAY
        for triples, time in past:
            found = value_of(triples)
            if found is not None and time is not None and time > now - _RECENT:
                self._values.setdefault((found.observation, time), []).append(found.value)

    def take(self, triples: Sequence[ox.Triple], now: int) -> bool:
        """Return whether a new element is one of these values, which then stands for no other element."""
        if not self._values or now > self._until:
            self._values.clear()
            return False
        found = value_of(triples)
        time = None if found is None or found.stamp is None else recorded_time(found.stamp)
        if found is None or time is None:
            return False
        values = self._values.get((found.observation, time), [])
        for number, value in enumerate(values):
            if _number(value) == _number(found.value):
                del values[number]
                return True
        return False


def _number(value: ox.Literal) -> float | str:
    """Return a value as a number, which may be written in several ways, or else its text."""
    try:
        return float(value.value)
    except ValueError:
        return value.value


def unknown(past: Elements, elements: Iterable[Element], end: int) -> Elements:
    """Return the values of the recent history that are not elements yet.

    `past`: its values with times before `end`, in order. `elements`: those of the stream.
    """
    exact: Counter[tuple[str, int]] = Counter()
    untimed: dict[str, list[int]] = {}
    """Arrivals of elements without a time of measurement, by observation, in order."""
    for element in elements:
        found = value_of(element.triples)
        if found is None:
            continue
        time = None if found.stamp is None else recorded_time(found.stamp)
        if time is None:
            untimed.setdefault(found.observation, []).append(element.time)
        # An element from the history has its time there, which is not before `end`.
        elif time < end and time != element.time:
            exact[found.observation, time] += 1
    for arrivals in untimed.values():
        arrivals.sort()
    return [each for each in reversed(past) if not _is_known(each, exact, untimed)][::-1]


def _is_known(
    past: tuple[Sequence[ox.Triple], int | None], exact: Counter[tuple[str, int]], untimed: dict[str, list[int]]
) -> bool:
    """Return whether a value is one of the elements, which then stands for no other value. Values come latest first."""
    triples, time = past
    found = value_of(triples)
    if found is None or time is None:
        return False
    key = found.observation, time
    if exact[key]:
        exact[key] -= 1
        return True
    arrivals = untimed.get(found.observation, [])
    while arrivals and arrivals[-1] - _DELAY > time:
        arrivals.pop()
    if arrivals and arrivals[-1] >= time:
        arrivals.pop()
        return True
    return False
