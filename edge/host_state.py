"""State of the machine that the gateway runs on: free disk space, synchronization of the clock."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_UNSYNCHRONISED: Final = 0x40
"""STA_UNSYNC, adjtimex(2)."""
_STATUS: Final = 40
"""Offset of `status` in `struct timex` on 64-bit machines, in bytes."""
_TIMEX: Final = 256
"""Buffer size, larger than that struct."""


def disk_space(directory: Path) -> tuple[int, int]:
    """Return the free and the total bytes of the file system of a directory. Raises `OSError`."""
    filesystem = os.statvfs(directory)
    # `f_bavail` excludes the blocks that the file system reserves for root.
    return filesystem.f_bavail * filesystem.f_frsize, filesystem.f_blocks * filesystem.f_frsize


def clock_synchronized() -> bool | None:
    """Return whether the kernel considers the clock synchronized, or None if not known."""
    # With a zeroed struct (`modes` is 0), adjtimex(2) changes nothing and needs no privilege.
    call = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)
    if call is None or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    answer = ctypes.create_string_buffer(_TIMEX)
    if call(answer) < 0:
        return None
    status = int.from_bytes(answer.raw[_STATUS : _STATUS + 4], "little")
    return not status & _UNSYNCHRONISED
