"""Durable files: written as a whole, and on the disk when a function here returns.

Without synchronization a power cut can lose the content of a file and the names of a directory. So a file is written
next to the old one, synchronized, and renamed; then its directory is synchronized.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""Errors of network file systems that cannot synchronize a directory."""


def write(file: Path, content: bytes, *, mode: int = 0o644, draft: Path | None = None) -> None:
    """Write a file atomically: after a power cut it has the old content or the new one.

    The file never has more permissions than `mode` (less the umask). `draft` names the temporary file in the same
    directory. Raises `OSError`; then the old file is unchanged.
    """
    draft = draft or file.with_name(f"{file.name}.part")
    try:
        # A draft that a killed run has left. O_EXCL below ensures that the file is new, and so has this mode.
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
    """Create a directory below `root`, with its parents. Their names are durable."""
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
    """Wait until the names in a directory are on the disk, if the file system supports it. Raises `OSError`."""
    try:
        sync_file(directory)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
