"""Batches: which samples became durable together, in the order of the event stream.

The samples of a log are numbered in the order of their batches, from 0. A log has a random identity, so the identity of
the log and the *position* of a sample name it forever: also in the raw file that replaces the log, and after a restart.
A gateway that is restored from a backup begins a new log, so it cannot give two samples the same name.
"""

from __future__ import annotations

import secrets
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from edge.recent.columns import DamagedColumn, deflated, inflated, pack_integers, unpack_integers

MISSING: Final = 2**32 - 1
"""Number in place of that of a series, for samples that could not be read."""
_IDENTITY_BITS: Final = 48
_COLUMNS: Final = 7
_ENTRY: Final = 8
"""Bytes of an entry in memory: the number of a series, and the number of its samples."""
_BATCH: Final = 400
"""Bytes of a batch in memory without its entries."""


class Batch(NamedTuple):
    """Samples that became durable in one step, by series."""

    log: int
    """Identity of the log; 0: the samples are not in the event stream."""
    first: int
    """Position of the first sample in the log."""
    published: int
    """Time at which they became durable, in ticks. It never decreases, although the wall clock may be set back."""
    numbers: array[int]
    """Numbers of the series, in the order of the samples."""
    counts: array[int]
    """Number of samples of each of them."""

    @property
    def end(self) -> int:
        """Position after the last sample."""
        return self.first + sum(self.counts)

    @property
    def bytes(self) -> int:
        """Approximate size in memory."""
        return _BATCH + _ENTRY * len(self.numbers)


class LogSection(NamedTuple):
    """All samples of one log in a buffer or file."""

    log: int
    first: int
    end: int
    """Position after the last sample."""
    begins: int
    """Time at which the first sample was published, in ticks."""
    ends: int
    """The same of the last sample."""


class SampleRun(NamedTuple):
    """Consecutive samples of one series in a batch."""

    number: int
    """Number of the series."""
    begin: int
    """Index of the first sample in the series."""
    size: int
    position: int
    """Position of the first sample in the log."""
    published: int


def new_identity() -> int:
    """Return the identity of a new log, which is not 0."""
    return secrets.randbelow(2**_IDENTITY_BITS - 1) + 1


def sections(batches: Iterable[Batch]) -> list[LogSection]:
    """Return the sections of the event stream in batches, in order."""
    found: dict[int, LogSection] = {}
    for batch in batches:
        if batch.log:
            known = found.get(batch.log)
            begins, first = (batch.published, batch.first) if known is None else (known.begins, known.first)
            found[batch.log] = LogSection(batch.log, first, batch.end, begins, batch.published)
    return list(found.values())


def sample_runs(batches: Iterable[Batch], log: int, begin: int, end: int) -> Iterator[SampleRun]:
    """Yield the samples of a log from position `begin` to `end`. Samples that could not be read are left out."""
    read: defaultdict[int, int] = defaultdict(int)
    for batch in batches:
        wanted = batch.log == log
        if wanted and batch.first >= end:
            return
        position = batch.first
        for number, count in zip(batch.numbers, batch.counts, strict=True):
            if wanted and position < end and position + count > begin and number != MISSING:
                skipped = max(0, begin - position)
                size = min(position + count, end) - position - skipped
                yield SampleRun(number, read[number] + skipped, size, position + skipped, batch.published)
            read[number] += count
            position += count


def packed(batches: Sequence[Batch], numbers: Sequence[int]) -> bytes:
    """Encode batches. `numbers`: the number of each series for readers, by its number in the batches."""
    # The numbers in the batches usually ascend, so they take a third of the bytes that those for readers would take.
    columns: tuple[list[int], ...] = ([], [], [], [], [], [], list(numbers))
    for batch in batches:
        for column, value in zip(columns, (batch.log, batch.first, batch.published, len(batch.numbers)), strict=False):
            column.append(value)
        columns[4].extend(batch.numbers)
        columns[5].extend(batch.counts)
    return deflated(map(pack_integers, columns))


def unpacked(data: bytes) -> list[Batch]:
    """Decode batches. Raises `DamagedColumn`."""
    view = inflated(data)
    columns: list[list[int]] = []
    for _ in range(_COLUMNS):
        column, view = unpack_integers(view)
        columns.append(column)
    logs, firsts, published, sizes, places, counts, numbers = columns
    found: list[Batch] = []
    try:
        entries = iter(
            [(MISSING if each == MISSING else numbers[each], n) for each, n in zip(places, counts, strict=True)]
        )
        for log, first, at, size in zip(logs, firsts, published, sizes, strict=True):
            chosen = list(islice(entries, size))
            found.append(
                Batch(
                    log, first, at, array("I", [each for each, _ in chosen]), array("I", [each for _, each in chosen])
                )
            )
    except (ValueError, OverflowError, IndexError) as error:
        raise DamagedColumn("the batches are damaged") from error
    return found
