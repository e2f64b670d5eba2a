"""Format of a backup: a gzipped tar archive of files below `data/`, with a manifest of their checksums at its end.

A truncated archive lacks the manifest, so it is detected.
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
"""Prefix of all names in the archive, except that of the manifest."""
MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
"""Version of the format; a higher number is from a newer version of sepa-edge."""
JOURNAL: Final = FILE_NAME
"""File without which a backup cannot be restored."""
LONGEST_MANIFEST: Final = 16 * 1024 * 1024
"""Bytes; enough for some 100,000 files."""

_OF_A_RUN: Final = (LOCK_NAME, disk_reserve.NAME, endpoints.NAME, last_run.NAME)
"""Files about the running process, which are not part of the data."""
STAGE: Final = ".restore"
"""Directory in the data directory with a backup that the next start puts in place."""
BEFORE: Final = "before-restore"
"""Directory with the files before that."""
_DRAFTS: Final = (".part", ".new", "-wal", "-shm", "-journal")
"""Suffixes of incomplete files, and of files that belong to an SQLite file and are copied with it."""
SQLITE: Final = ".sqlite3"
"""Suffixes of SQLite files."""


class BackupRefused(EdgeError):
    """A backup cannot be created or restored. Nothing was changed."""

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
class BackupManifest:
    """Content of an archive."""

    version: str
    """Version of sepa-edge that created it."""
    made: str
    """Time of creation; UTC, ISO 8601."""
    files: tuple[ArchiveEntry, ...]
    format: int = FORMAT

    def to_json(self) -> bytes:
        """Return the bytes of the manifest file."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> BackupManifest:
        """Parse a manifest file. Raises `BackupRefused`."""
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
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise BackupRefused("The backup is damaged: its manifest cannot be read") from error

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def belongs(path: Path) -> bool:
    """Return whether a file of the data directory is part of a backup."""
    return path.name not in _OF_A_RUN and not path.name.endswith(_DRAFTS)


def is_safe(name: str) -> bool:
    """Return whether a name stays below the target directory."""
    path = PurePosixPath(name)
    return bool(name) and str(path) == name and not path.is_absolute() and ".." not in path.parts and "\0" not in name
