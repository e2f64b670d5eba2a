"""Aggregates of samples: minimum, maximum, mean, last value and count of a period."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from edge.protocol.series import SeriesRow, Value
from edge.recent.block_file import Block, Minutes, Samples
from edge.recent.columns import EXACT, Number, is_ascending, scale
from edge.recent.series import MICROSECONDS, TICKS, Kind

MINUTE: Final = 60 * TICKS
"""Ticks."""
_MEAN_DECIMALS: Final = 2
"""Decimals of a stored mean beyond those of the values."""

_SCALE: Final = 2.0**-64
"""Factor that keeps sums of large doubles in the range of a double."""


class Points:
    """Values of one series from several blocks, in the order of time: single samples and aggregates alike."""

    def __init__(self, kind: Kind, blocks: Iterable[Block], begin: int, end: int) -> None:
        """Only values from `begin` to before `end` (ticks) are used."""
        self._texts: dict[str, int] = {}
        numeric = kind != "text"
        times: list[int] = []
        last: list[Number] = []
        counts: list[int] = []
        low: list[Number] = []
        high: list[Number] = []
        mean: list[Number] = []
        for block in blocks:
            values = block.values if isinstance(block, Samples) else block.last
            if not numeric:
                codes = [self._texts.setdefault(text, len(self._texts)) for text in block.texts]
                values = [codes[int(value)] for value in values]
            times += block.times
            last += values
            if isinstance(block, Samples):
                counts += [1] * len(values)
                if numeric:
                    low += values
                    high += values
                    mean += values
            else:
                counts += block.counts
                low += block.low
                high += block.high
                mean += block.mean
        columns: list[Sequence[Number]] = [last, counts, low, high, mean] if numeric else [last, counts]
        if not is_ascending(times):
            # Stable, so of two values with the same time the later one stays the last.
            order = sorted(range(len(times)), key=times.__getitem__)
            times = [times[each] for each in order]
            columns = [[column[each] for each in order] for column in columns]
        first, stop = bisect_left(times, begin), bisect_left(times, end)
        self.kind = kind
        self.times = times[first:stop]
        self._columns = [column[first:stop] for column in columns]
        self._names = list(self._texts)

    def __len__(self) -> int:
        return len(self.times)

    def rows(self) -> list[SeriesRow]:
        """Return the values as they are stored. Two files may have parts of a minute, which are one row here."""
        rows: list[SeriesRow] = []
        position, times, counts = 0, self.times, self._columns[1]
        while position < len(times):
            end = position + 1
            while end < len(times) and times[end] == times[position] and max(counts[end - 1 : end + 1]) > 1:
                end += 1
            rows.append(self._row(times[position], position, end))
            position = end
        return rows

    def periods(self, step: int, origin: int = 0) -> list[SeriesRow]:
        """Return the aggregates of periods of `step` ticks, one of which begins at `origin`. Empty ones are omitted."""
        rows: list[SeriesRow] = []
        position, times = 0, self.times
        while position < len(times):
            begin = times[position] - (times[position] - origin) % step
            end = bisect_left(times, begin + step, position)
            rows.append(self._row(begin, position, end, aggregated=True))
            position = end
        return rows

    def minutes(self) -> Minutes:
        """Return the aggregates of minutes, for storage."""
        rows = self.periods(MINUTE)
        exact = scale([float(each) for each in self._columns[0]]) if self.kind == "number" else (0, [])
        decimals = None if exact is None else exact[0] + _MEAN_DECIMALS
        means = [row.mean or 0.0 for row in rows] if self.kind != "text" else []
        return Minutes(
            [row.time // MICROSECONDS for row in rows],
            [self._texts[row.value] if isinstance(row.value, str) else _number(row.value) for row in rows],
            [row.samples or 1 for row in rows],
            [_number(row.low) for row in rows] if means else [],
            [_number(row.high) for row in rows] if means else [],
            means if decimals is None else [round(mean, decimals) for mean in means],
            self._names,
        )

    def _row(self, time: int, begin: int, end: int, *, aggregated: bool = False) -> SeriesRow:
        last, counts = self._columns[:2]
        count = int(sum(counts[begin:end]))
        value = self._value(last[end - 1])
        at = time * MICROSECONDS
        if count == 1 and not aggregated:
            return SeriesRow(at, value)
        if self.kind == "text":
            return SeriesRow(at, value, count)
        _, _, low, high, mean = self._columns
        middle = _mean(mean[begin:end], None if count == end - begin else counts[begin:end], count)
        return SeriesRow(at, value, count, self._value(min(low[begin:end])), self._value(max(high[begin:end])), middle)

    def _value(self, value: Number) -> Value:
        if self.kind == "number":
            # Values in memory are doubles, those in files may be integers: clients see the same.
            return value if value % 1 or abs(value) >= EXACT else int(value)
        return bool(value) if self.kind == "boolean" else self._names[int(value)]


def _mean(values: Sequence[Number], counts: Sequence[Number] | None, count: int) -> float:
    """Return the mean of values, each of which stands for so many samples (None: one), `count` in total."""
    total = sum(_products(values, counts))
    if math.isfinite(total):
        return total / count
    # The sum is beyond the range of a double, so the small values that scaling loses do not count.
    scaled = sum(_products([value * _SCALE for value in values], counts)) / count / _SCALE
    return float(min(max(values), max(min(values), scaled)))  # rounding can lead out of the range again


def _products(values: Sequence[Number], counts: Sequence[Number] | None) -> Iterable[Number]:
    return values if counts is None else map(float.__mul__, map(float, values), map(float, counts))


def _number(value: Value | None) -> Number:
    assert isinstance(value, (int, float)), "only texts have no minimum and maximum"  # noqa: S101
    return value
