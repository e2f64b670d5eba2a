"""Room on the disk that a gateway keeps while it is stopped, for its next start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge.engine.journal import sqlite_schema

NAME: Final = "reserve"
_SIZE: Final = 256 * 1024
"""Bytes: what SQLite wants for its logs, and the indexes of them, before it opens a file."""


@contextlib.contextmanager
def used(data_dir: Path) -> Iterator[None]:
    """The room is there to be used as long as this lasts, and is kept again afterwards, where there is any.

    SQLite removes its logs when a file is closed, and makes them anew when it is opened. So a gateway that was stopped
    would not start where something else has filled the disk up since. One that was killed has its logs.
    """
    file = data_dir / NAME
    with contextlib.suppress(OSError):
        file.unlink()
    try:
        yield
    finally:
        if (data_dir / sqlite_schema.FILE_NAME).exists():
            _keep(file)


def _keep(file: Path) -> None:
    try:
        with file.open("wb") as kept:
            os.posix_fallocate(kept.fileno(), 0, _SIZE)
    except OSError:  # the disk is full
        with contextlib.suppress(OSError):
            file.unlink()
