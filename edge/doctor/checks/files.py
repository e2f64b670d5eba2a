"""Check of the files in the data directory: permissions, owners, damage, leftovers."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from edge import endpoints
from edge.backup import is_staged
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem, warning
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import LOCK_NAME, DirectoryLock
from edge.security import client_database, row_checksums

_OTHERS: Final = 0o077
_SECRET: Final = ("edge.sqlite3*", "clients.sqlite3*", "tls/*.key", "mqtt-client-id")
_DRAFTS: Final = ("*.part", "*.new")
_OLD: Final = 3_600.0
"""Seconds after which a draft counts as abandoned."""
_LARGE: Final = 10 * sqlite_schema.LOG_LIMIT
"""Bytes of the write-ahead log; normally it is emptied much earlier."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check permissions, owners, leftovers, the write-ahead log and the checksums of the client file."""
    directory = around.data_dir
    if not directory.exists():
        yield ok("files.no_directory", directory=str(directory))
        return
    found = [*_readable(directory), *_foreign(directory), *_left(around), *_staged(directory), *_log(around)]
    found += _clients(directory)
    yield from found
    if not found:
        yield ok("files.in_order", directory=str(directory))


def _readable(directory: Path) -> Iterator[Finding]:
    paths = [directory, *(path for pattern in _SECRET for path in sorted(directory.glob(pattern)))]
    wide = [path for path in paths if _is_own(path.lstat()) and stat.S_IMODE(path.stat().st_mode) & _OTHERS]
    if wide:
        names = ", ".join(path.name for path in wide)
        yield warning("files.readable", partial(_close, wide), names=names, paths=" ".join(map(str, wide)))


def _clients(directory: Path) -> Iterator[Finding]:
    """Verify the checksums of the rows of the client file."""
    file = directory / client_database.NAME
    if not file.is_file():
        return
    try:
        damaged = row_checksums.damage(file)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield problem("files.clients_damaged", file=client_database.NAME, reason=str(error))
        return
    if damaged:
        yield problem("files.client_rows_damaged", file=client_database.NAME, rows=", ".join(damaged))


def _is_own(found: os.stat_result) -> bool:
    """Return whether it is a directory, or a regular file without other links.

    The doctor may run as root, and any user may have created a link.
    """
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)


def _opened(path: Path) -> int:
    """Open the file itself. Raises `OSError` if it has become a link in the meantime."""
    # O_NOFOLLOW refuses symbolic links. O_NONBLOCK avoids waiting for the writer of a named pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not _is_own(os.fstat(descriptor)):  # of the open file: the path may name another one by now
        os.close(descriptor)
        raise OSError(errno.ELOOP, "is another file by this name", str(path))
    return descriptor


def _close(paths: list[Path]) -> None:
    for path in paths:
        descriptor = _opened(path)
        os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & ~_OTHERS)
        os.close(descriptor)


def _foreign(directory: Path) -> Iterator[Finding]:
    """Find files of another owner, for example after a command of root."""
    owner = directory.stat()
    foreign = [
        path for path in sorted(directory.rglob("*")) if _is_own(path.lstat()) and path.lstat().st_uid != owner.st_uid
    ]
    if foreign:
        names = ", ".join(path.relative_to(directory).as_posix() for path in foreign[:5])
        fix = partial(_give, directory, foreign) if os.geteuid() == 0 else None
        yield problem("files.foreign", fix, names=names, directory=str(directory), count=len(foreign))


def _give(directory: Path, paths: list[Path]) -> None:
    owner = directory.stat()
    for path in paths:
        descriptor = _opened(path)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.close(descriptor)


def _left(around: DoctorContext) -> Iterator[Finding]:
    directory = around.data_dir
    drafts = [
        path
        for pattern in _DRAFTS
        for path in sorted(directory.glob(pattern))
        if path.is_file() and around.now() - path.stat().st_mtime > _OLD
    ]
    if drafts:
        names = ", ".join(path.name for path in drafts)
        yield warning("files.drafts", partial(_remove, drafts), names=names, paths=" ".join(map(str, drafts)))
    stale = directory / endpoints.NAME
    if around.process is None and stale.exists():
        yield warning("files.endpoints", partial(_remove, [stale]), file=endpoints.NAME, path=str(stale))
    kept = sorted(directory.parent.glob(f"{directory.name}.before-restore*"))
    for draft in sorted(directory.parent.glob(f".{directory.name}.restore-*")):
        if (
            draft / LOCK_NAME
        ).exists():  # the directories were exchanged, but the restore was killed before it renamed the old one
            kept.append(draft)
        elif around.now() - draft.stat().st_mtime > _OLD:
            yield warning("files.restore_draft", partial(shutil.rmtree, draft), path=str(draft), name=draft.name)
    for before in kept:
        yield warning("files.before_restore", path=str(before))


def _staged(directory: Path) -> Iterator[Finding]:
    if is_staged(directory):
        yield warning("files.staged")


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _log(around: DoctorContext) -> Iterator[Finding]:
    wal = around.data_dir / f"{sqlite_schema.FILE_NAME}-wal"
    size = wal.stat().st_size if wal.exists() else 0
    if size <= _LARGE:
        return
    megabytes = round(size / 1e6)
    if around.process is None:
        yield warning("files.log_stopped", partial(_move, around.data_dir), file=wal.name, megabytes=megabytes)
    else:
        yield warning("files.log_held", file=wal.name, megabytes=megabytes)


def _move(directory: Path) -> None:
    """Checkpoint the write-ahead log as the gateway does at its start.

    Raises `DataDirectoryRefused` if the gateway runs or the file is damaged.
    """
    lock = DirectoryLock(directory)
    try:
        path = directory / sqlite_schema.FILE_NAME
        sqlite_schema.verify(path)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            raise OSError(str(error)) from error
    finally:
        lock.release()
