"""Durable files: written as a whole, and on the disk when a function here returns.

The file system may lose what it has not written when the power is cut: of a file its content, of a directory the names.
So a file is written next to the old one, synchronised, and renamed; then its directory is synchronised.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""Some network file systems cannot synchronise a directory."""


def write(file: Path, content: bytes, *, mode: int = 0o644, draft: Path | None = None) -> None:
    """Put a file there in one step: after a power cut it has the old content or the new one.

    The file never has more rights than `mode` (less the umask). `draft` names the file that is written first; it is in
    the same directory. Raises `OSError`; the old file is as it was then.
    """
    draft = draft or file.with_name(f"{file.name}.part")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
        draft.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_directory(file.parent)


def make_directory(directory: Path, root: Path) -> None:
    """Make a directory below `root`, and those in between; the names are as durable as what will be in it."""
    if directory == root or directory.is_dir():
        return
    make_directory(directory.parent, root)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def sync_file(file: Path) -> None:
    """Wait until a file's content is on the disk. Raises `OSError`."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk, where the file system can do that. Raises `OSError`."""
    try:
        sync_file(directory)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
