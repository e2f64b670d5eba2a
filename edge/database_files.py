"""Files of an open SQLite database: detects that another program has renamed, deleted or replaced them.

SQLite keeps its files open. So it would go on writing to a deleted or renamed file, which no restart finds. A program
that writes into the files is not detected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SUFFIXES: Final = ("", "-wal", "-shm")
"""A database in WAL mode has three files (https://www.sqlite.org/walformat.html)."""

_Identity = tuple[int, int]
"""Device and inode."""


class DatabaseFiles:
    """The files of one open database. Thread-safe."""

    def __init__(self, path: Path, remedy: str) -> None:
        """`path`: the database, which is open and was read or written, so that all its files exist.

        `remedy`: what to do if the files are gone.
        """
        self._path = path
        self._remedy = remedy
        names = [f"{path}{suffix}" for suffix in _SUFFIXES]
        self._known = {name: known for name in names if (known := _identity(name)) is not None}

    @property
    def displaced(self) -> bool:
        """Whether a file was renamed, deleted or replaced. Takes some microseconds."""
        try:
            for name, known in self._known.items():
                status = os.stat(name)  # noqa: PTH116 - called for each commit
                if (status.st_dev, status.st_ino) != known:
                    return True
        except OSError:
            return True
        return False

    @property
    def fault(self) -> str:
        """Problem and remedy; empty if all files are in place."""
        if not self.displaced:
            return ""
        name = self._path.name
        return (
            f"{self._path} (or {name}-wal, {name}-shm) was renamed, deleted or replaced while the gateway uses it, so"
            " that a restart may not find what is written now. Put the same files back. If they are gone,"
            f" {self._remedy}"
        )


def _identity(name: str) -> _Identity | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_dev, status.st_ino
