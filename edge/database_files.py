"""Files of an open SQLite database: detects that another program has renamed, deleted, replaced or overwritten them.

SQLite keeps its files open. So it would go on writing to a deleted or renamed file, which no restart finds.
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
    """The files of one open database. Thread-safe, except for `note`."""

    def __init__(self, path: Path) -> None:
        """`path`: the database, which is open and was read or written, so that all its files exist."""
        self.path = path
        self._name = str(path)
        names = [f"{path}{suffix}" for suffix in _SUFFIXES]
        self._known = {name: known for name in names if (known := _identity(name)) is not None}
        self._noted = (0, 0)
        """`written` after the last write by this process."""
        self.note()

    def note(self) -> None:
        """Remember the database after a write by this process."""
        self._noted = self.written

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
    def written(self) -> tuple[int, int]:
        """Size in bytes and time of the last write in nanoseconds of the database file, at present."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 - as above
        except OSError:
            return 0, 0
        return status.st_size, status.st_mtime_ns

    @property
    def overwritten(self) -> bool:
        """Whether another program has written to the database file, which a checkpoint does as well."""
        return self.written != self._noted

    @property
    def fault(self) -> str:
        """Problem and remedy; empty if all files are in place."""
        return displaced(self.path) if self.displaced else ""


def displaced(path: Path) -> str:
    """Return the error message for a database whose files are not in place."""
    return (
        f"{path} (or {path.name}-wal, {path.name}-shm) was renamed, deleted or replaced while the gateway uses it, so"
        " a restart would lose what is written now. Put the same files back. If they are gone, export the data from"
        " the running gateway, then restart it"
    )


def _identity(name: str) -> _Identity | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_dev, status.st_ino
