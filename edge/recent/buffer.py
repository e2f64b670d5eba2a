"""Buffer of samples that are not in a finished file yet, by series."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from edge.recent.batches import Batch
from edge.recent.series import SeriesKey

_SAMPLE: Final = 16
"""Bytes of a sample in memory."""
_SERIES: Final = 600
"""Approximate bytes of a series in memory, with its keys."""
_MOST_TEXTS: Final = 256
"""Different texts of a series in one buffer. A series with more is not an enumeration."""
_GAP: Final = 100
"""Ticks between two recorded periods that count as one."""


def add_period(periods: list[tuple[int, int]], begin: int, end: int) -> None:
    """Add a period to others in the order of time. It extends the last one if less than a second lies between them."""
    if periods:
        first, last = periods[-1]
        if first <= begin <= last + _GAP:
            periods[-1] = (first, max(last, end))
            return
    periods.append((begin, end))


class SeriesBuffer:
    """Samples of one series, in the order of their arrival."""

    __slots__ = ("codes", "number", "times", "values", "written", "written_texts")

    def __init__(self, number: int) -> None:
        self.number = number
        """Number of the series in the buffer."""
        self.times: array[int] = array("q")
        """Ticks."""
        self.values: array[float] = array("d")
        """Numbers; 1 or 0 for booleans; codes of texts."""
        self.codes: dict[str, int] = {}
        """Codes of texts, which are consecutive."""
        self.written = 0
        """Number of samples that the log on the disk has."""
        self.written_texts = 0
        """Number of texts that it has."""


class SampleBuffer:
    """Samples by series, and the periods in which the gateway recorded. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self.series: dict[SeriesKey, SeriesBuffer] = {}
        self.recorded: list[tuple[int, int]] = []
        """Periods in ticks, in order."""
        self.batches: list[Batch] = []
        """Samples on the disk, in the order of their batches."""
        self.bytes = 0
        """Approximate size in memory."""

    def __bool__(self) -> bool:
        return bool(self.series)

    def add(self, key: SeriesKey, time: int, value: float) -> None:
        """Add a number or boolean."""
        series = self.series.get(key)
        if series is None:
            series = self._begin(key)
        series.times.append(time)
        series.values.append(value)
        self.bytes += _SAMPLE

    def add_text(self, key: SeriesKey, time: int, text: str) -> bool:
        """Add a text. Returns False if the series has too many different ones; the text is not added then."""
        series = self.series.get(key) or self._begin(key)
        code = series.codes.get(text)
        if code is None:
            code = len(series.codes)
            if code >= _MOST_TEXTS:
                return False
            series.codes[text] = code
            self.bytes += _SERIES // 6 + len(text)
        self.add(key, time, code)
        return True

    def extend(self, key: SeriesKey, times: Iterable[int], values: Iterable[float]) -> None:
        """Add numbers or booleans."""
        for time, value in zip(times, values, strict=True):
            self.add(key, time, value)

    def record(self, begin: int, end: int) -> None:
        """Note that the gateway recorded from `begin` to `end` (ticks)."""
        add_period(self.recorded, begin, end)

    def publish(self, batch: Batch) -> None:
        """Note that samples are on the disk. From here on the event stream has them."""
        self.batches.append(batch)
        self.bytes += batch.bytes

    def fresh(self) -> Iterator[tuple[SeriesKey, SeriesBuffer]]:
        """Yield the series with samples that the log does not have."""
        for key, series in self.series.items():
            if series.written < len(series.times):
                yield key, series

    def _begin(self, key: SeriesKey) -> SeriesBuffer:
        series = self.series[key] = SeriesBuffer(len(self.series))
        self.bytes += _SERIES + len(key.observation) + len(key.graph)
        return series
