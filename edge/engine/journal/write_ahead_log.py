"""Check of the write-ahead log without SQLite: detects acknowledged commits that have become unreadable.

SQLite reads a write-ahead log up to the first frame with a wrong checksum, and silently drops the rest. After a power
cut that is the interrupted commit. A damaged frame in the middle looks the same to SQLite, but would lose acknowledged
commits. The data after the bad frame makes the difference: with a sync at every commit, only the interrupted commit can
be torn. So two commit ends at or after a bad frame prove damage. One case cannot be detected: if the header of the last
frame of the second to last commit is damaged, the last two commits look like one torn commit.

Format: https://www.sqlite.org/fileformat2.html, section 4, "The Write-Ahead Log".
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct(">IIII8sII")
"""Magic, format, page size, checkpoint number, salts, checksum (twice 32 bits)."""

_FRAME = struct.Struct(">II8sII")
"""Page number, pages of the file after this commit (0: not the end of a commit), salts, checksum (twice 32 bits)."""

_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF
_Sums = tuple[int, int]


def pages_of(size: int, page_size: int) -> int:
    """Return how many pages a log of `size` bytes holds."""
    return (size - _HEADER.size) // (_FRAME.size + page_size)


def fault(wal: Path) -> str | None:
    """Return the problem of a write-ahead log that was written with a sync at every commit; None if it is intact.

    Reads up to the first invalid frame, 20 us a frame of 1 KiB. Raises `OSError`.
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
        # SQLite syncs the header before it writes any frame.
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
        # Frames with other salts are remains of an earlier round of the log.
        if not whole and frame_salts == salts and commit:
            ends += 1
    return f"{ends} commits in it cannot be read" if ends > 1 else None


def _checksum(order: str, data: bytes, sums: _Sums) -> _Sums:
    """Return the Fletcher-like sums of section 4.2, over pairs of 32-bit numbers in the byte order of the header."""
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
