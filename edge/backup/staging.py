"""Restore in two steps for a running gateway: it stages a checked backup, and the next start puts it in place.

The service cannot exchange its data directory, because it may not write to the directory above. So the files are moved
within the data directory, in phases that a marker file records. A start after a crash goes on where the last one ended.

    .restore/new     files of the backup, checked
    .restore/old     files that the data directory had
    .restore/phase   `staged`: `new` is whole; `aside`: the old files are in `old`; `done`: the new ones are in place
    before-restore   the old files, until the next restore
"""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
import zlib
from pathlib import Path
from typing import IO, Final

from edge import durable
from edge.backup.archive import BEFORE, JOURNAL, STAGE, BackupManifest, BackupRefused
from edge.backup.restoring import adapt, check_journal, extract, settle
from edge.engine.journal.data_directory import LOCK_NAME, DirectoryLock

_NEW: Final = "new"
_OLD: Final = "old"
_PHASE: Final = "phase"
_STAY: Final = frozenset({STAGE, BEFORE, LOCK_NAME})
"""Entries of the data directory that are not moved."""


def stage(source: IO[bytes], data_dir: Path, most: int) -> BackupManifest:
    """Extract and check a backup of at most `most` bytes below a data directory that a gateway may use.

    The next `complete` puts it in place. Raises `BackupRefused`; then nothing has changed.
    """
    place = data_dir / STAGE
    if (place / _PHASE).exists():
        raise BackupRefused("A restored backup waits for the restart of the gateway already")
    try:
        shutil.rmtree(place, ignore_errors=True)  # of an attempt that failed
        (place / _NEW).mkdir(mode=0o700, parents=True)
        try:
            manifest = extract(source, place / _NEW, most)
            check_journal(place / _NEW)
            settle(place, data_dir)
            durable.sync_directory(data_dir)
            durable.write(place / _PHASE, b"staged")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupRefused(f"The backup is damaged, or none: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise BackupRefused(f"The backup could not be put below {data_dir}: {error}") from error
    return manifest


def complete(data_dir: Path) -> bool:
    """Put a staged backup in place. Return whether there was one.

    Must be called before a gateway uses the directory. Raises `OSError`, `sqlite3.Error`, `DataDirectoryRefused`; the
    next call goes on.
    """
    place = data_dir / STAGE
    if not (place / _PHASE).exists():
        return False
    lock = DirectoryLock(data_dir)
    try:
        phase = (place / _PHASE).read_bytes()
        if phase == b"staged":
            (place / _OLD).mkdir(exist_ok=True)
            _move(data_dir, place / _OLD)
            durable.write(place / _PHASE, b"aside")
            phase = b"aside"
        if phase == b"aside":
            if (place / _NEW / JOURNAL).exists():  # otherwise it was adapted, and moved in part, before a crash
                adapt(place / _NEW, place / _OLD)
            _move(place / _NEW, data_dir)
            durable.write(place / _PHASE, b"done")
        if (place / _OLD).exists():  # otherwise `before-restore` has it already
            shutil.rmtree(data_dir / BEFORE, ignore_errors=True)
            (place / _OLD).rename(data_dir / BEFORE)
        durable.sync_directory(data_dir)
        shutil.rmtree(place)
    finally:
        lock.release()
    return True


def _move(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        if entry.name not in _STAY:
            entry.rename(target / entry.name)
    durable.sync_directory(source)
    durable.sync_directory(target)
