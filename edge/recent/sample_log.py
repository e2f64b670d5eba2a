"""Log of samples that are not in a finished file yet: one chunk every half minute, synced.

A chunk begins at a multiple of 4 KiB and is written once. A card writes whole blocks, so an append to a partly filled
block would write that block again. A chunk whose checksum is wrong ends the log: the power was cut while it was
written.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from pathlib import Path
from typing import Final, NamedTuple

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
_HEADER: Final = struct.Struct("<8sIIqq")
"""Magic, length and checksum of the content, and the recorded period in ticks."""
_DOUBLES: Final = 255
"""Decimals of a series whose samples are doubles."""
_LONGEST: Final = 64 * 1024 * 1024
"""Limit of the content of a chunk in bytes."""


class Chunk(NamedTuple):
    """Encoded samples, and the state of the log after their write."""

    data: bytes
    numbers: dict[SeriesKey, int]
    marks: list[tuple[SeriesBuffer, int, int]]
    """Series with the number of their samples and texts."""


class SampleLog:
    """One log file, written from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        """The file is created with the first chunk."""
        self.path = path
        self._numbers: dict[SeriesKey, int] = {}
        """Number of each series in this log."""
        self.size = 0
        """Bytes."""

    def chunk(self, buffer: SampleBuffer, begin: int, end: int) -> Chunk:
        """Encode the samples that the log does not have, and the recorded period (ticks)."""
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
                names.append(key)
            if len(series.codes) > series.written_texts:
                texts.append((number, list(series.codes)[series.written_texts :]))
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
        content = deflated([struct.pack("<I", len(head)) + head, *columns, pack_doubles(doubles)])
        data = _HEADER.pack(_MAGIC, len(content), zlib.crc32(content), begin, end) + content
        return Chunk(data + bytes(-len(data) % BLOCK), numbers, marks)

    def append(self, chunk: Chunk) -> None:
        """Write a chunk to the disk, while the buffer may grow. Raises `OSError`; then the next chunk replaces it."""
        data = chunk.data
        created = not self.size
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o640)
        try:
            place = self.size
            while place < self.size + len(data):
                place += os.pwrite(descriptor, data[place - self.size :], place)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if created:
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        self.size += len(data)
        self._numbers = chunk.numbers
        for series, samples, texts in chunk.marks:
            series.written, series.written_texts = samples, texts


def read(path: Path, buffer: SampleBuffer) -> str:
    """Add the samples of a log to a buffer. Returns why the log ends early, or an empty text. Raises `OSError`."""
    names: list[SeriesKey] = []
    texts: dict[int, list[str]] = {}
    with path.open("rb") as file:
        while header := file.read(_HEADER.size):
            if len(header) < _HEADER.size or not any(header):
                return "it is cut off" if any(header) else ""
            magic, length, checksum, begin, end = _HEADER.unpack(header)
            content = file.read(length) if magic == _MAGIC and length <= _LONGEST else b""
            if len(content) != length or zlib.crc32(content) != checksum:
                return "a chunk is incomplete"
            try:
                _read_chunk(content, buffer, names, texts)
            except (DamagedColumn, ValueError, LookupError, TypeError, struct.error) as error:
                return f"a chunk cannot be read: {error}"
            buffer.record(begin, end)
            file.seek(-file.tell() % BLOCK, os.SEEK_CUR)
    return ""


def _read_chunk(content: bytes, buffer: SampleBuffer, names: list[SeriesKey], texts: dict[int, list[str]]) -> None:
    data = inflated(content)
    (length,) = struct.unpack_from("<I", data)
    new_names, new_texts = json.loads(bytes(data[4 : 4 + length]))
    names += [SeriesKey(*each) for each in new_names]
    for number, added in new_texts:
        texts.setdefault(number, []).extend(added)
    columns: list[list[int]] = []
    data = data[4 + length :]
    for _ in range(5):
        column, data = unpack_integers(data)
        columns.append(column)
    ids, counts, times, decimals, integers = columns
    doubles, _ = unpack_doubles(data)
    at = at_integer = at_double = 0
    for number, count, places in zip(ids, counts, decimals, strict=True):
        if places == _DOUBLES:
            values = array("d", doubles[at_double : at_double + count])
            at_double += count
        else:
            values = array("d", unscaled(integers[at_integer : at_integer + count], places))
            at_integer += count
        key = names[number]
        if key.kind == "text":
            known = texts[number]
            for time, code in zip(times[at : at + count], values, strict=True):
                buffer.add_text(key, time, known[int(code)])
        else:
            buffer.extend(key, times[at : at + count], values)
        at += count
