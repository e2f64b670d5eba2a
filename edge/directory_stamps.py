"""Which files of a directory have changed: replaced, rewritten or touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Stamp = tuple[int, int, int]
"""Modification time (ns), size and inode."""


class DirectoryStamps:
    """The stamps of the files in one directory, which need not exist."""

    def __init__(self, directory: Path, accepts: Callable[[Path], bool]) -> None:
        """`accepts`: whether a file counts."""
        self.directory = directory
        self._accepts = accepts
        self.unreadable: str | None = None
        """Why the directory could not be read the last time; None if it could."""

    def read(self) -> dict[Path, Stamp] | None:
        """Return the existing files. None: the directory cannot be read, so its files are unknown."""
        found: dict[Path, Stamp] = {}
        try:
            for path in self.directory.iterdir():
                if self._accepts(path):
                    found |= _stamp(path)
        except FileNotFoundError:
            pass  # the operator creates the directory
        except OSError as error:
            self.unreadable = str(error)
            return None
        self.unreadable = None
        return found


def _stamp(path: Path) -> dict[Path, Stamp]:
    """Return the stamp of a file; nothing if it has disappeared, or is a link to nothing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return {}
    except OSError:
        return {path: (0, 0, 0)}  # reading it will say why
    return {path: (status.st_mtime_ns, status.st_size, status.st_ino)}
