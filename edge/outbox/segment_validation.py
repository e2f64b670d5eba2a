"""Validation of the rows of a segment: whether they are those of the manifest, and whether Spark can read them.

Spark reads a row with SQL expressions, and a single unreadable row fails the commit of all gateways. So the forms of
numbers here are those that Spark reads, which are fewer than those of Python (`1_0`, Arabic digits). The memory is that
of a block and its longest row, not that of the file.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader, BytesIO
from typing import Final

from edge.outbox.segment import SegmentDamaged, SegmentManifest

MOST_ROW_BYTES: Final = 32 << 20
MOST_BYTES: Final = 1 << 30
"""Size of all rows when unpacked."""
_BLOCK: Final = 1 << 20
_READ: Final = 64 << 10
"""Bytes of the packed rows that are unpacked at once."""
_GZIP: Final = 31
"""Window size that makes zlib expect a gzip header (RFC 1952)."""
_ROW: Final = re.compile(
    rb"^(0|[1-9][0-9]{0,17})\t(0|[1-9][0-9]{0,8})\t(0|-?[1-9][0-9]{0,18})(?:\t[^\t\n]*){0,6}$", re.MULTILINE
)
"""Number, context and time, and up to six other cells."""
_LONG: Final = 19
"""Digits of the smallest number that may not fit into 64 bits."""


def check_rows(manifest: SegmentManifest, packed: bytes) -> None:
    """Check that the rows file is whole, and that its rows have the numbers of the manifest. Raises `SegmentDamaged`.

    This costs 0.4 microseconds a row on a PC, so it can be done before each commit.
    """
    _scan(manifest, BytesIO(packed), _check_numbers)


def validate_rows(manifest: SegmentManifest, packed: bytes | BufferedReader) -> None:
    """Check also that Spark can read each row, and that the manifest has the times of the rows.

    This takes four times as long. Raises `SegmentDamaged`, `OSError`.
    `packed` is the content of the rows file, or the file itself, which is then read in blocks.
    """
    start, end = check_readable(manifest, packed)
    if (start, end) != (manifest.start, manifest.end):
        raise SegmentDamaged(f"its times are {start} to {end}, and its manifest states others")


def check_readable(manifest: SegmentManifest, packed: bytes | BufferedReader) -> tuple[int, int]:
    """Check like `validate_rows`, except for the times of the manifest. Returns the earliest and the latest time."""
    known = {b"%d" % number for number in manifest.contexts}
    file = BytesIO(packed) if isinstance(packed, bytes) else packed
    times: list[int] = []
    _scan(manifest, file, lambda lines, first: times.extend(_check_cells(lines, first, known)))
    return min(times), max(times)


def _scan(manifest: SegmentManifest, packed: BytesIO | BufferedReader, check: Callable[[bytes, int], None]) -> None:
    """Unpack the rows, and let `check` check whole lines, of which the first one has a given number."""
    size = packed.seek(0, os.SEEK_END)
    packed.seek(0)
    manifest.check_digest(size, hashlib.file_digest(packed, "sha256").hexdigest() if size == manifest.size else "")
    packed.seek(0)
    utf8 = codecs.getincrementaldecoder("utf-8")()
    expected = manifest.first
    begin: list[bytes] = []
    size = 0
    for block in _blocks(packed):
        try:
            utf8.decode(block)
        except UnicodeDecodeError:
            raise SegmentDamaged(f"row {expected} or one of the next is not UTF-8") from None
        head, end, tail = block.rpartition(b"\n")
        if end:
            lines = b"".join([*begin, head, end])
            after = expected + lines.count(b"\n")
            if after > manifest.last + 1:
                raise SegmentDamaged(f"it has rows after {manifest.last}, the last number of its manifest")
            check(lines, expected)
            expected, begin, size = after, [], 0
        begin.append(tail)
        size += len(tail)
        if size > MOST_ROW_BYTES:
            raise SegmentDamaged(f"row {expected} is larger than {MOST_ROW_BYTES} bytes")
    if size:
        raise SegmentDamaged(f"row {expected} has no line end")
    if expected != manifest.last + 1:
        raise SegmentDamaged(f"it has {expected - manifest.first} rows, and its manifest states {manifest.rows}")


def _check_numbers(lines: bytes, first: int) -> None:
    rows = lines.split(b"\n")[:-1]
    numbers = [b"%d\t" % number for number in range(first, first + len(rows))]
    if not all(map(bytes.startswith, rows, numbers)):
        row, number = next(pair for pair in zip(rows, numbers, strict=True) if not pair[0].startswith(pair[1]))
        raise SegmentDamaged(f"row {number.decode().strip()} begins with {row[:_LONG].split()[:1]}")


def _check_cells(lines: bytes, first: int, known: set[bytes]) -> tuple[int, int]:
    """Check all cells. Returns the earliest and the latest time."""
    _check_numbers(lines, first)
    found = _ROW.findall(lines)
    if len(found) != lines.count(b"\n") or any(len(time) >= _LONG for _, _, time in found):
        _blame(lines, first)  # times of 19 digits may be valid
    for number, (_, context, _) in enumerate(found, first):
        if context not in known:
            raise SegmentDamaged(f"row {number} has the context {context.decode()}, which is not in its manifest")
    times = [int(time) for _, _, time in found]
    return min(times), max(times)


def _blame(lines: bytes, first: int) -> None:
    """Raise `SegmentDamaged` for the first line that Spark cannot read."""
    for number, line in enumerate(lines.split(b"\n")[:-1], first):
        row = _ROW.fullmatch(line)
        if row is None:
            raise SegmentDamaged(f"row {number} cannot be read: {line[:40]!r}")
        if not -(1 << 63) <= int(row[3]) < 1 << 63:
            raise SegmentDamaged(f"the time of row {number} does not fit into 64 bits")


def _blocks(packed: BytesIO | BufferedReader) -> Iterator[bytes]:
    """Yield the unpacked content in blocks. Raises `SegmentDamaged` unless it is exactly one gzip member."""
    unpacker, size = zlib.decompressobj(_GZIP), 0
    try:
        while not unpacker.eof:
            read = unpacker.unconsumed_tail or packed.read(_READ)
            if not (block := unpacker.decompress(read, _BLOCK)) and not (read or unpacker.eof):
                raise SegmentDamaged("its rows cannot be unpacked: they end early")
            if (size := size + len(block)) > MOST_BYTES:
                raise SegmentDamaged(f"its rows have more than {MOST_BYTES} bytes")
            yield block
    except zlib.error as error:
        raise SegmentDamaged(f"its rows cannot be unpacked: {error}") from None
    if unpacker.unused_data or packed.read(1):
        raise SegmentDamaged("its rows file has other data after the rows")
