"""Two directories that change their names in one step, so that a power cut finds the one or the other in place."""

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
"""The C library, the kernel or the file system does not know how."""


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two directories of one file system. Raises `OSError`; nothing has changed then.

    Where the file system cannot do that in one step, there is a moment in which `other` is missing.
    """
    code = _renameat2(one, other)
    if code == 0:
        return
    if code not in _NOT_THERE:
        raise OSError(code, os.strerror(code), str(other))
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def _renameat2(one: Path, other: Path) -> int:
    """0, or the number of the error."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    failed = call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE))
    return ctypes.get_errno() if failed else 0
