"""What a backup is: a gzipped tar archive of files below `data/`, and at its end a manifest with their sums.

An archive that was cut off has no manifest, so it is none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final

from edge import endpoints, last_run
from edge.engine.journal import disk_reserve
from edge.engine.journal.data_directory import LOCK_NAME
from edge.engine.journal.sqlite_schema import FILE_NAME
from edge.protocol.errors import EdgeError

DATA: Final = "data/"
"""What the names of all files in the archive begin with, but for the manifest's."""
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
"""Of archives; one with a higher number was made by a newer version."""
JOURNAL: Final = FILE_NAME
"""The file without which there is no gateway to put back."""
LONGEST_MANIFEST: Final = 16 * 1024 * 1024
"""Bytes: some 100,000 files."""

_OF_A_RUN: Final = (LOCK_NAME, disk_reserve.NAME, endpoints.NAME, last_run.NAME)
"""Files that speak of a gateway that runs or ran here, not of what it knows."""
_DRAFTS: Final = (".part", ".new", "-wal", "-shm", "-journal")
"""How names of files end that are not whole, or belong to an SQLite file that is copied with them."""
SQLITE: Final = ".sqlite3"
"""How names of SQLite files end."""


class BackupRefused(EdgeError):
    """A backup cannot be made, or not be put back; what was there before is there unchanged."""

    error: ClassVar[str] = "backup_refused"


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One file of a data directory."""

    path: str
    """Relative to the data directory, with slashes."""
    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal."""
    mode: int
    """Permissions."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive holds."""

    version: str
    """Of the gateway that made it."""
    made: str
    """When; UTC, ISO 8601."""
    files: tuple[ArchiveEntry, ...]
    format: int = FORMAT

    def to_json(self) -> bytes:
        """As it stands in the archive."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Raises `BackupRefused`."""
        try:
            found = json.loads(text)
            form = int(found["format"])
            if form > FORMAT:
                raise BackupRefused(
                    f"The backup was made by a newer version of sepa-edge ({found['version']}): use that one"
                )
            files = tuple(
                ArchiveEntry(str(one["path"]), int(one["size"]), str(one["sha256"]), int(one["mode"]) & 0o777)
                for one in found["files"]
            )
            return cls(str(found["version"]), str(found["made"]), files, form)
        except (KeyError, TypeError, ValueError) as error:
            raise BackupRefused("The backup is damaged: its manifest cannot be read") from error

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def belongs(path: Path) -> bool:
    """Whether a file of the data directory is part of a backup."""
    return path.name not in _OF_A_RUN and not path.name.endswith(_DRAFTS)


def is_safe(name: str) -> bool:
    """Whether a name stays below the directory that it is put into."""
    path = PurePosixPath(name)
    return bool(name) and str(path) == name and not path.is_absolute() and ".." not in path.parts and "\0" not in name
