"""Creation of a backup while the gateway runs: verified snapshots of SQLite files, and copies of all others."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from edge import __version__, durable
from edge.backup.archive import (
    BEFORE,
    DATA,
    JOURNAL,
    MANIFEST,
    SQLITE,
    STAGE,
    ArchiveEntry,
    BackupManifest,
    BackupRefused,
    belongs,
)
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import DataDirectoryRefused

_BUSY: Final = 30.0
"""Seconds to wait for a locked file, which is locked during a checkpoint of its write-ahead log."""
_LEVEL: Final = 6
"""Compression level, 1 to 9."""


def make(data_dir: Path, target: Path | IO[bytes], *, force: bool = False) -> BackupManifest:
    """Write a backup of a data directory into a file, readable for its owner only, or into a stream.

    The file is written atomically and durably; `force` permits to replace an existing one. The data directory is not
    changed. Raises `BackupRefused`.
    """
    if not (data_dir / JOURNAL).is_file():
        raise BackupRefused(f"{data_dir} is not a data directory of a gateway: {JOURNAL} is missing")
    if isinstance(target, Path) and target.absolute().parent.resolve().is_relative_to(data_dir.resolve()):
        raise BackupRefused(f"{target} is in the data directory, of which the backup is: name another place")
    # Before the work: a backup of a large graph takes a while.
    if isinstance(target, Path) and not force and os.path.lexists(target):
        raise _exists(target)
    try:
        if isinstance(target, Path):
            return _into_file(data_dir, target, force=force)
        with tempfile.TemporaryDirectory(prefix="edge-backup-") as draft:
            return _write(data_dir, target, Path(draft))
    except DataDirectoryRefused as error:
        raise BackupRefused(error.description) from error
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        where = getattr(error, "filename", None) or (target if isinstance(target, Path) else data_dir)
        reason = getattr(error, "strerror", None) or error
        raise BackupRefused(f"The backup could not be made: {where}: {reason}") from error


def _exists(target: Path) -> BackupRefused:
    return BackupRefused(f"{target} exists already: name another file, or replace this one with --force")


def _into_file(data_dir: Path, target: Path, *, force: bool) -> BackupManifest:
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}.") as directory:
        draft = Path(directory)
        archive = draft / "archive"
        with os.fdopen(os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            manifest = _write(data_dir, file, draft)
            file.flush()
            os.fsync(file.fileno())
        # Again: a backup takes a while, and another process may have made the file in the meantime.
        if not force and os.path.lexists(target):
            raise _exists(target)
        archive.replace(target)
    # The new name is durable only after the directory is on the disk, too.
    durable.sync_directory(target.absolute().parent)
    return manifest


def _write(data_dir: Path, file: IO[bytes], draft: Path) -> BackupManifest:
    entries: list[ArchiveEntry] = []
    # Streaming mode (`|`), so that the target may be a pipe.
    with (
        gzip.GzipFile("", "wb", _LEVEL, file) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _files(data_dir):
            name = path.relative_to(data_dir).as_posix()
            if path.name.endswith(SQLITE):
                copy = draft / "copy"
                _copy(path, copy)
                entries.append(_add(archive, name, copy, stat.S_IMODE(path.stat().st_mode)))
                copy.unlink()
            else:
                with contextlib.suppress(FileNotFoundError):  # it was removed in the meantime
                    entries.append(_add(archive, name, path))
        manifest = BackupManifest(__version__, datetime.now(UTC).isoformat(timespec="seconds"), tuple(entries))
        text = manifest.to_json()
        archive.addfile(_member(MANIFEST, len(text), 0o600), io.BytesIO(text))
    return manifest


def _files(data_dir: Path) -> Iterator[Path]:
    """Yield regular files by name; no links, which may lead elsewhere."""
    for directory, names, files in os.walk(data_dir):
        if Path(directory) == data_dir:
            names[:] = {*names} - {STAGE, BEFORE}
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if belongs(path) and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _copy(path: Path, copy: Path) -> None:
    """Copy an SQLite file in its state between two commits, while others write to it."""
    source = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY)
    with contextlib.closing(source), contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as target:
        # A draft needs no rollback and no durability.
        target.execute("PRAGMA journal_mode = OFF").fetchall()
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target)
        if path.name != JOURNAL and (fault := target.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise BackupRefused(f"{path} is damaged: {fault}")
    if path.name == JOURNAL:
        sqlite_schema.verify(copy)


def _add(archive: tarfile.TarFile, name: str, path: Path, mode: int | None = None) -> ArchiveEntry:
    # A file may grow while it is read. The header of a tar member has its size first, so read no more than that.
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        hashed = _Hashed(file, status.st_size)
        permissions = stat.S_IMODE(status.st_mode) if mode is None else mode
        archive.addfile(_member(DATA + name, status.st_size, permissions), hashed)
    return ArchiveEntry(name, status.st_size, hashed.sum.hexdigest(), permissions)


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, mode, int(time.time())
    return member


class _Hashed(io.RawIOBase):
    """A file that computes its checksum while it is read, up to its size at the beginning."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._rest = size
        self.sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read as from any file."""
        found = self._file.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(found)
        self.sum.update(found)
        return found
