"""Log of samples that are not in a finished file yet: one chunk every half minute, synced.

A chunk begins at a multiple of 4 KiB and is written once. A card writes whole blocks, so an append to a partly filled
block would write that block again. A chunk that fails its checksum is left out. At the end of the log, the power was
cut while it was written; elsewhere, the file is damaged.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from pathlib import Path
from typing import IO, Final, NamedTuple

from edge import durable
from edge.recent.batches import MISSING, Batch, new_identity
from edge.recent.buffer import SampleBuffer, SeriesBuffer
from edge.recent.columns import (
    DamagedColumn,
    deflated,
    inflated,
    pack_doubles,
    pack_integers,
    scale,
    unpack_doubles,
    unpack_integers,
    unscaled,
)
from edge.recent.series import SeriesKey

BLOCK: Final = 4096
"""Bytes that a card writes at once."""
_MAGIC: Final = b"EDGEsam1"
HEADER: Final = struct.Struct("<8sIIqq")
"""Magic, length and checksum of the content, and the recorded period in ticks."""
_DOUBLES: Final = 255
"""Decimals of a series whose samples are doubles."""
_BATCH: Final = struct.Struct("<QQq")
"""Identity of the log, position of the first sample, and time at which the samples were published in ticks.

It is at the end of the content. A chunk of an earlier version has none.
"""
_LONGEST: Final = 64 * 1024 * 1024
"""Limit of the content of a chunk in bytes."""


class Chunk(NamedTuple):
    """Encoded samples, and the state of the log after their write."""

    data: bytes
    numbers: dict[SeriesKey, int]
    marks: list[tuple[SeriesBuffer, int, int]]
    """Series with the number of their samples and texts."""
    batch: Batch


class LogMissing(OSError):
    """The log was deleted or renamed while it is in use."""


class SampleLog:
    """One log file, written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        """The file is created with the first chunk."""
        self.path = path
        self._numbers: dict[SeriesKey, int] = {}
        """Number of each series in this log."""
        self.size = 0
        """Bytes."""
        self.identity = new_identity()
        self._next = 0
        """Position of the next sample."""

    def batch(self, buffer: SampleBuffer, published: int) -> Batch:
        """Return the samples that the log does not have as a batch."""
        fresh = [(series.number, len(series.times) - series.written) for _, series in buffer.fresh()]
        numbers, counts = array("I", [number for number, _ in fresh]), array("I", [count for _, count in fresh])
        return Batch(self.identity, self._next, published, numbers, counts)

    def chunk(self, buffer: SampleBuffer, begin: int, end: int, published: int) -> Chunk:
        """Encode the samples that the log does not have, the recorded period and the time of the batch (ticks)."""
        batch = self.batch(buffer, published)
        marks: list[tuple[SeriesBuffer, int, int]] = []
        numbers, names, texts = self._numbers.copy(), [], []
        ids: list[int] = []
        counts: list[int] = []
        decimals: list[int] = []
        times: list[int] = []
        integers: list[int] = []
        doubles: list[float] = []
        for key, series in buffer.fresh():
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(numbers)
                names.append((number, key))
            if len(series.codes) > series.written_texts:
                texts.append((number, series.written_texts, list(series.codes)[series.written_texts :]))
            marks.append((series, len(series.times), len(series.codes)))
            values = series.values[series.written :].tolist()
            scaled = scale(values)
            ids.append(number)
            counts.append(len(values))
            times += series.times[series.written :].tolist()
            if scaled is None:
                decimals.append(_DOUBLES)
                doubles += values
            else:
                decimals.append(scaled[0])
                integers += scaled[1]
        head = json.dumps([names, texts], ensure_ascii=False, separators=(",", ":")).encode()
        columns = [pack_integers(each) for each in (ids, counts, times, decimals, integers)]
        about = _BATCH.pack(batch.log, batch.first, batch.published)
        content = deflated([struct.pack("<I", len(head)) + head, *columns, pack_doubles(doubles) + about])
        data = HEADER.pack(_MAGIC, len(content), zlib.crc32(content), begin, end) + content
        return Chunk(data + bytes(-len(data) % BLOCK), numbers, marks, batch)

    def append(self, chunk: Chunk) -> None:
        """Write a chunk to the disk, while the buffer may grow. Raises `OSError`; then the next chunk replaces it.

        Raises `LogMissing` if the earlier chunks are not there. Without them, no start could read this one.
        """
        data = chunk.data
        created = not self.size
        try:
            descriptor = os.open(self.path, os.O_WRONLY | (os.O_CREAT if created else 0), 0o640)
        except FileNotFoundError as error:
            if created:
                raise
            raise LogMissing(*error.args, error.filename) from None
        try:
            place = self.size
            while place < self.size + len(data):
                place += os.pwrite(descriptor, data[place - self.size :], place)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if created:
            durable.sync_directory(self.path.parent)
        self.size += len(data)
        self._numbers = chunk.numbers
        self._next = chunk.batch.end
        for series, samples, texts in chunk.marks:
            series.written, series.written_texts = samples, texts


class LogEnd(NamedTuple):
    """How the reading of a log ended."""

    reason: str = ""
    """Problem of the first chunk that cannot be read; empty without one."""
    damaged: bool = False
    """Whether readable chunks follow it. Otherwise the power was cut while it was written."""


class _Names:
    """Series and texts that the chunks of a log have introduced."""

    def __init__(self) -> None:
        self.series: dict[int, SeriesKey] = {}
        self.texts: dict[int, dict[int, str]] = {}


def read(path: Path, buffer: SampleBuffer) -> LogEnd:
    """Add the samples of a log to a buffer, except for those of damaged chunks. Raises `OSError`."""
    names = _Names()
    reason, damaged = "", False
    with path.open("rb") as file:
        while header := file.read(HEADER.size):
            begin = file.tell() - len(header)
            if len(header) == HEADER.size and not any(header):
                file.seek(begin + BLOCK)
                continue
            problem = _read_chunk(header, file, buffer, names)
            if problem:
                reason = reason or problem
                file.seek(begin + BLOCK)
            else:
                damaged = damaged or bool(reason)
                file.seek(-file.tell() % BLOCK, os.SEEK_CUR)
    return LogEnd(reason, damaged)


def _read_chunk(header: bytes, file: IO[bytes], buffer: SampleBuffer, names: _Names) -> str:
    """Read the chunk with this header. Returns why it cannot be read, or an empty text."""
    if len(header) < HEADER.size:
        return "a chunk is cut off"
    magic, length, checksum, begin, end = HEADER.unpack(header)
    if magic != _MAGIC or length > _LONGEST:
        return "a chunk has no valid header"
    content = file.read(length)
    if len(content) != length or zlib.crc32(content) != checksum:
        return "a chunk is incomplete or damaged"
    try:
        _read_content(content, buffer, names)
    except (DamagedColumn, ValueError, LookupError, TypeError, struct.error) as error:
        return f"a chunk cannot be read: {error}"
    buffer.record(begin, end)
    return ""


def _read_content(content: bytes, buffer: SampleBuffer, names: _Names) -> None:
    data = inflated(content)
    (length,) = struct.unpack_from("<I", data)
    new_names, new_texts = json.loads(bytes(data[4 : 4 + length]))
    names.series.update((number, SeriesKey(*key)) for number, key in new_names)
    for number, first, added in new_texts:
        names.texts.setdefault(number, {}).update(enumerate(added, first))
    columns: list[list[int]] = []
    data = data[4 + length :]
    for _ in range(5):
        column, data = unpack_integers(data)
        columns.append(column)
    ids, counts, times, decimals, integers = columns
    doubles, data = unpack_doubles(data)
    log, first, published = _BATCH.unpack_from(data) if len(data) >= _BATCH.size else (0, 0, 0)
    batch = Batch(log, first, published, array("I"), array("I"))
    at = at_integer = at_double = 0
    for number, count, places in zip(ids, counts, decimals, strict=True):
        if places == _DOUBLES:
            values = array("d", doubles[at_double : at_double + count])
            at_double += count
        else:
            values = array("d", unscaled(integers[at_integer : at_integer + count], places))
            at_integer += count
        key = names.series.get(number)
        # The chunk that introduced the series, or a text, may be damaged.
        if key is not None and key.kind == "text":
            known = names.texts.get(number, {})
            for time, code in zip(times[at : at + count], values, strict=True):
                added = (text := known.get(int(code))) is not None and buffer.add_text(key, time, text)
                _extend(batch, buffer.series[key].number if added else MISSING, 1)
        elif key is not None:
            buffer.extend(key, times[at : at + count], values)
            _extend(batch, buffer.series[key].number, count)
        else:
            _extend(batch, MISSING, count)
        at += count
    buffer.publish(batch)


def _extend(batch: Batch, number: int, count: int) -> None:
    """Add samples of a series to a batch."""
    if batch.numbers and batch.numbers[-1] == number:
        batch.counts[-1] += count
    else:
        batch.numbers.append(number)
        batch.counts.append(count)
