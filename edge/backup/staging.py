"""Restore in two steps for a running gateway: it stages a checked backup, and the next start puts it in place.

The service cannot exchange its data directory, because it may not write to the directory above. So the files are moved
within the data directory, in phases that a marker file records. A start after a crash goes on where the last one ended.

    .restore/new     files of the backup, checked
    .restore/old     files that the data directory had
    .restore/phase   the phase in its first line, and a detail
    before-restore   the old files, until the next restore

Phases: `staged` (`new` is whole), `aside` (the old files are in `old`), `adapted` (`new` is as it should be), `placed`
(the new files are in place, and not confirmed yet), `done`. If the gateway does not become ready with the new files,
`undo` takes them back: `clearing` (the new files are moved to `failed`), `returning` (the old ones are moved back).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from edge import __version__, durable, last_run
from edge.backup.archive import BEFORE, STAGE, BackupManifest, BackupRefused
from edge.backup.restore_backup import adapt, check_clients, check_journal, check_streams, extract, settle
from edge.engine.journal.data_directory import LOCK_NAME, DirectoryLock
from edge.protocol.errors import EdgeError
from edge.security.client_database import NAME as CLIENTS

_NEW: Final = "new"
_OLD: Final = "old"
_FAILED: Final = "failed"
_PHASE: Final = "phase"
_STAY: Final = frozenset({STAGE, BEFORE, LOCK_NAME})
"""Entries of the data directory that are not moved."""
_ACCESS: Final = (f"{CLIENTS}*", "tls")
"""Patterns of the files that decide who has access."""
_KEEP: Final = "keep"
"""Detail of the phases before `placed`: the clients and certificates of the gateway stay."""
_TRIES: Final = 3
"""Starts with the new files after which they are taken back. A power cut may interrupt the first ones."""


class _Phase(NamedTuple):
    name: str
    detail: str = ""

    def write(self, place: Path) -> None:
        durable.write(place / _PHASE, f"{self.name}\n{self.detail}".encode())

    @classmethod
    def read(cls, place: Path) -> _Phase | None:
        """Return the phase; None if nothing is staged."""
        try:
            name, _, detail = (place / _PHASE).read_text(encoding="utf-8", errors="replace").partition("\n")
        except FileNotFoundError:
            return None
        return cls(name, detail)


def stage(
    source: IO[bytes], data_dir: Path, most: int, *, keep_clients: bool = False, caller: str | None = None
) -> BackupManifest:
    """Extract and check a backup of at most `most` bytes below a data directory that a gateway may use.

    The next `complete` puts it in place; a backup that was staged before is forgotten. `keep_clients`: clients and
    certificates stay those of the gateway. Otherwise the backup must have a client with the name `caller`, if one is
    given: the gateway has security, and nobody else could sign in. Raises `BackupRefused`; then nothing has changed.
    """
    place = data_dir / STAGE
    phase = _Phase.read(place)
    if phase is not None and phase.name not in ("staged", "done"):
        raise BackupRefused("Another restore is being completed: start the gateway, then try again")
    try:
        for entry in _immovable(data_dir):
            raise BackupRefused(
                f"{entry} belongs to another user, or is a mount point, so the gateway cannot move it aside: "
                f"`chown --recursive --reference={data_dir} {entry}`, or restore with `edge restore --replace`"
            )
        shutil.rmtree(place, ignore_errors=True)  # of an attempt that failed
        (place / _NEW).mkdir(mode=0o700, parents=True)
        try:
            manifest = extract(source, place / _NEW, most)
            check_journal(place / _NEW)
            if not keep_clients:
                check_clients(place / _NEW, caller)
            check_streams(place / _NEW)
            settle(place, data_dir)
            durable.sync_directory(data_dir)
            _Phase("staged", _KEEP if keep_clients else "").write(place)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupRefused(f"This is not a backup, or a damaged one: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise BackupRefused(f"The backup could not be put below {data_dir}: {error}") from error
    return manifest


def unstage(data_dir: Path) -> bool:
    """Forget a staged backup. Returns whether there was one. Raises `BackupRefused` if it is being put in place."""
    phase = _Phase.read(data_dir / STAGE)
    if phase is not None and phase.name != "staged":
        raise BackupRefused("The restore has begun: start the gateway, which completes it or takes it back")
    if phase is not None:
        (data_dir / STAGE / _PHASE).unlink()
        shutil.rmtree(data_dir / STAGE, ignore_errors=True)
    return phase is not None


def is_staged(data_dir: Path) -> bool:
    """Return whether a backup waits for the next start."""
    phase = _Phase.read(data_dir / STAGE)
    return phase is not None and phase.name == "staged"


def complete(data_dir: Path) -> bool:
    """Put a staged backup in place; `confirm` keeps it. Returns whether there was one.

    It takes the backup back if the gateway has not become ready with it in three starts. Must be called before a
    gateway uses the directory. Raises `DataDirectoryRefused` if another process uses it, and `OSError` if neither state
    can be reached; the next call goes on.
    """
    place = data_dir / STAGE
    if not place.exists():
        return False
    lock = DirectoryLock(data_dir)
    try:
        phase = _Phase.read(place)
        if phase is None:  # of an attempt that was killed
            shutil.rmtree(place, ignore_errors=True)
            return False
        if phase.name in ("clearing", "returning"):
            _take_back(data_dir, phase)
        elif phase.name == "placed":
            tries = int(phase.detail or 1)
            if tries < _TRIES:
                with contextlib.suppress(OSError):  # a full disk must not prevent the start
                    _Phase("placed", str(tries + 1)).write(place)
            else:
                _undo(data_dir, phase, f"the gateway did not become ready in {_TRIES} starts")
        elif phase.name == "done":
            with contextlib.suppress(OSError):  # the restore is complete; the next start tries to clean up again
                _finish(data_dir)
        else:
            try:
                _put_in_place(data_dir, phase)
            except (OSError, sqlite3.Error, EdgeError) as error:
                _undo(data_dir, _Phase.read(place) or phase, str(error))
    finally:
        lock.release()
    return True


def confirm(data_dir: Path) -> None:
    """Keep a restored backup: the gateway is ready with it. Raises `OSError`; the next start goes on."""
    place = data_dir / STAGE
    phase = _Phase.read(place)
    if phase is not None and phase.name == "placed":
        _Phase("done").write(place)
        _finish(data_dir)


def undo(data_dir: Path, reason: str) -> bool:
    """Take a restored backup back if it is not confirmed yet. Returns whether it was.

    Call this when the gateway could not start, and has closed its files. Raises `OSError`, `DataDirectoryRefused`.
    """
    phase = _Phase.read(data_dir / STAGE)
    if phase is None or phase.name != "placed":
        return False
    lock = DirectoryLock(data_dir)
    try:
        _undo(data_dir, phase, reason)
    finally:
        lock.release()
    return True


def _put_in_place(data_dir: Path, phase: _Phase) -> None:
    place = data_dir / STAGE
    if phase.name == "staged":
        (place / _OLD).mkdir(exist_ok=True)
        _move(data_dir, place / _OLD)
        phase = _Phase("aside", phase.detail)
        phase.write(place)
    if phase.name == "aside":
        if phase.detail == _KEEP:
            _keep_access(place / _OLD, place / _NEW)
        adapt(place / _NEW, place / _OLD, same_clients=phase.detail == _KEEP)
        _Phase("adapted").write(place)
    _move(place / _NEW, data_dir)
    _Phase("placed", "1").write(place)


def _keep_access(old: Path, new: Path) -> None:
    """Replace clients and certificates of the backup by those of the gateway."""
    for pattern in _ACCESS:
        for path in new.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in old.glob(pattern):
            if path.is_dir():
                shutil.copytree(path, new / path.name)
            else:
                shutil.copy2(path, new / path.name)


def _undo(data_dir: Path, phase: _Phase, reason: str) -> None:
    """Return to the old files."""
    # Before `aside`, only old files are in the data directory; some of them may be in `old` already.
    begin = _Phase("returning" if phase.name == "staged" else "clearing", reason.replace("\n", " "))
    begin.write(data_dir / STAGE)
    _take_back(data_dir, begin)


def _take_back(data_dir: Path, phase: _Phase) -> None:
    place = data_dir / STAGE
    if phase.name == "clearing":
        (place / _FAILED).mkdir(exist_ok=True)
        _move(data_dir, place / _FAILED)
        phase = _Phase("returning", phase.detail)
        phase.write(place)
    if (place / _OLD).exists():
        _move(place / _OLD, data_dir)
    with contextlib.suppress(OSError):  # the reason is less important than the start
        last_run.undone(data_dir, __version__, phase.detail)
    (place / _PHASE).unlink()
    shutil.rmtree(place, ignore_errors=True)


def _finish(data_dir: Path) -> None:
    place = data_dir / STAGE
    if (place / _OLD).exists():  # otherwise `before-restore` has it already
        shutil.rmtree(data_dir / BEFORE, ignore_errors=True)
        (place / _OLD).rename(data_dir / BEFORE)
    durable.sync_directory(data_dir)
    shutil.rmtree(place)


def _immovable(data_dir: Path) -> Iterator[Path]:
    """Yield the entries that this user cannot move, and the directories of an earlier restore that it cannot remove."""
    for entry in sorted(data_dir.iterdir()):
        # The name of the directory above is in a directory itself: to move it, one must be able to write it.
        own = entry.is_symlink() or not entry.is_dir() or os.access(entry, os.W_OK | os.X_OK)
        if entry.name not in _STAY and (not own or entry.is_mount()):
            yield entry
    for directory, _, _ in os.walk(data_dir / BEFORE):
        if not os.access(directory, os.W_OK | os.X_OK):
            yield Path(directory)


def _move(source: Path, target: Path) -> None:
    for entry in sorted(source.iterdir()):
        if entry.name not in _STAY:
            entry.rename(target / entry.name)
    durable.sync_directory(source)
    durable.sync_directory(target)
