"""Atomic exchange of two directories: after a power cut one of them is in place."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_HERE: Final = -100
"""AT_FDCWD."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE."""
_NOT_THERE: Final = (errno.ENOSYS, errno.EINVAL)
"""Errors if the C library, the kernel or the file system does not support it."""


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two directories of one file system. Raises `OSError`; then nothing has changed.

    Without support by the file system, `other` is missing for a short time.
    """
    code = _renameat2(one, other)
    if code == 0:
        return
    if code not in _NOT_THERE:
        raise OSError(code, os.strerror(code), str(other))
    # Three renames. If the second one fails, the first is undone.
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def _renameat2(one: Path, other: Path) -> int:
    """Return 0, or the error number."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    failed = call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE))
    return ctypes.get_errno() if failed else 0
