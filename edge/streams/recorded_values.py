"""Which values of the recent history are elements of the stream of observations already, so that none counts twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

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


class FilledValue(NamedTuple):
    """A value with which windows have begun, and whose element may still be on the way to the stream."""

    element: Element
    """With the time of the history."""
    value: ox.Literal
    until: int
    """Time after which its element does not come any more."""
    windows: set[str]
    """Keys of the windows that have begun with it."""


class FilledValues:
    """Values with which windows have begun, and whose elements may still be on the way to the stream."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], list[FilledValue]] = {}
        self._until = 0
        """Time after which the first of them expires."""

    def note(self, past: Iterable[Element], window: str, begin: int, now: int) -> None:
        """Note the values of the history with which a window begins now.

        `window`: its key. `begin`: time of the first values that it contains. It also contains those with which others
        began shortly before.
        """
        self._expire(now)
        for values in self._values.values():
            for each in values:
                if each.element.time >= begin:
                    each.windows.add(window)
        if not self._values:
            self._until = now + _DELAY
        for element in past:
            found = value_of(element.triples)
            if found is not None and element.time > now - _RECENT:
                filled = FilledValue(element, found.value, now + _DELAY, {window})
                self._values.setdefault((found.observation, element.time), []).append(filled)

    def take(self, triples: Sequence[ox.Triple], now: int) -> FilledValue | None:
        """Return the value whose element this new one is, which then stands for no other element; None: it is new."""
        self._expire(now)
        found = value_of(triples) if self._values else None
        time = None if found is None or found.stamp is None else recorded_time(found.stamp)
        if found is None or time is None:
            return None
        values = self._values.get((found.observation, time), [])
        for number, each in enumerate(values):
            if _number(each.value) == _number(found.value):
                return values.pop(number)
        return None

    def _expire(self, now: int) -> None:
        if not self._values or now <= self._until:
            return
        for key, values in list(self._values.items()):
            values[:] = [each for each in values if now <= each.until]
            if not values:
                del self._values[key]
        self._until = min((each.until for values in self._values.values() for each in values), default=0)


def _number(value: ox.Literal) -> float | str:
    """Return a value as a number, which may be written in several ways, or else its text."""
    try:
        return float(value.value)
    except ValueError:
        return value.value


def unknown(past: Elements, elements: Iterable[Element], end: int) -> Elements:
    """Return the values of the recent history with times before `end` that are not elements yet.

    `past`: its values up to now, in order. `elements`: those of the stream, whose times are not before `end`. Those of
    values without a time of measurement have another time than the history. The latest of them stands for the latest
    such value before it, the one before that for the next one, and so on.
    """
    if not past or past[0][1] is None or past[0][1] >= end:
        return []
    exact: Counter[tuple[str, int]] = Counter()
    untimed: dict[str, list[int]] = {}
    """Arrivals of elements without a time of measurement, by observation."""
    for element in elements:
        found = value_of(element.triples)
        if found is None:
            continue
        time = None if found.stamp is None else recorded_time(found.stamp)
        if time is None:
            untimed.setdefault(found.observation, []).append(element.time)
        else:
            exact[found.observation, time] += 1
    for arrivals in untimed.values():
        arrivals.sort()
    left = [each for each in reversed(past) if not _is_known(each, exact, untimed)]
    return [each for each in reversed(left) if each[1] is not None and each[1] < end]


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
    # Each arrival that comes after this value, and not long after it, can stand for it: the latest one does.
    while arrivals and arrivals[-1] - _DELAY > time:
        arrivals.pop()
    if arrivals and arrivals[-1] >= time:
        arrivals.pop()
        return True
    return False
