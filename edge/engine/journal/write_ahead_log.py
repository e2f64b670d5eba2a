"""The write-ahead log read without SQLite: whether commits that were made durable have become unreadable.

SQLite takes a write-ahead log up to the first frame whose checksum is wrong, and drops the rest in silence: after a
power cut that is the one commit under way. A damaged frame in the middle looks the same to it, and would lose commits
that were acknowledged. The difference shows in what follows the bad frame. With a sync at every commit only the commit
under way can be torn, so two ends of commits at or behind a bad frame prove damage. One case stays open: where the head
of the very frame that ends the last commit but one is damaged, the last two look like one that was torn.

Format: https://www.sqlite.org/fileformat2.html, section 4, "The Write-Ahead Log".
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct(">IIII8sII")
"""Magic, format, page size, checkpoint number, salts, checksum (twice 32 bits)."""

_FRAME = struct.Struct(">II8sII")
"""Page number, pages of the file after this commit (0: no end of a commit), salts, checksum (twice 32 bits)."""

_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF
_Sums = tuple[int, int]


def fault(wal: Path) -> str | None:
    """What is wrong with a write-ahead log that was written with a sync at every commit; None if nothing is.

    It reads up to the first frame that does not count, 20 us a frame of 1 KiB. Raises `OSError`.
    """
    try:
        with wal.open("rb") as file:
            return _fault(file, wal.stat().st_size)
    except FileNotFoundError:
        return None


def _fault(file: BinaryIO, size: int) -> str | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, _, page_size, _, salts, first, second = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    sums = _checksum(order, header[:24], (0, 0))
    if magic & ~1 != _MAGIC or sums != (first, second):
        # The header is synced before any frame is written.
        return "its header is damaged" if size > _HEADER.size + _FRAME.size else None
    ends = 0
    whole = True
    while len(frame := file.read(_FRAME.size)) == _FRAME.size:
        page = file.read(page_size)
        _, commit, frame_salts, first, second = _FRAME.unpack(frame)
        if len(page) < page_size:
            break
        if whole:
            sums = _checksum(order, page, _checksum(order, frame[:8], sums))
            whole = frame_salts == salts and sums == (first, second)
        # Frames with other salts are what an earlier round of the log left behind.
        if not whole and frame_salts == salts and commit:
            ends += 1
    return f"{ends} commits in it cannot be read" if ends > 1 else None


def _checksum(order: str, data: bytes, sums: _Sums) -> _Sums:
    """The Fletcher-like sums of section 4.2, over pairs of 32-bit numbers in the byte order that the header gives."""
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
