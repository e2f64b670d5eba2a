"""Disk reserve: space that a stopped gateway occupies, so that its next start succeeds on a full disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.engine.journal import sqlite_schema

NAME: Final = "reserve"
_SIZE: Final = 256 * 1024
"""Bytes that SQLite needs for its logs and their indexes before it opens a file."""


@contextlib.contextmanager
def used(data_dir: Path) -> Iterator[None]:
    """Free the reserve during the context, and allocate it again afterwards if there is space.

    SQLite deletes its logs when a file is closed, and creates them when it is opened. So after a clean stop, a gateway
    could not start if other data had filled the disk meanwhile. After a kill the logs still exist.
    """
    file = data_dir / NAME
    with contextlib.suppress(OSError):
        file.unlink()
    try:
        yield
    finally:
        # Only in the directory of a gateway: a directory that was refused stays as it was.
        if (data_dir / sqlite_schema.FILE_NAME).exists():
            _allocate(file)


def _allocate(file: Path) -> None:
    try:
        with file.open("wb") as reserve:
            # Allocates blocks. A truncated file would be sparse and reserve nothing.
            os.posix_fallocate(reserve.fileno(), 0, _SIZE)
    except OSError:  # the disk is full
        with contextlib.suppress(OSError):
            file.unlink()
