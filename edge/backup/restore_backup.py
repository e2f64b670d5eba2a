"""Restore of a backup: checked as a whole next to the data directory, then exchanged with it in one step."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from edge import __version__, durable, last_run
from edge.backup.archive import (
    DATA,
    JOURNAL,
    LONGEST_MANIFEST,
    MANIFEST,
    ArchiveEntry,
    BackupManifest,
    BackupRefused,
    is_safe,
)
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import LOCK_NAME, DataDamaged, DataDirectoryRefused, DirectoryLock
from edge.protocol.errors import EdgeError
from edge.security.client_database import NAME as CLIENTS
from edge.security.client_database import ClientDatabase
from edge.security.clients import ClientRegistry
from edge.security.oscore import leap
from edge.streams.settings import FILE_NAME as STREAMS
from edge.streams.store import StreamStore

_CHUNK: Final = 1024 * 1024
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""Arguments of renameat2(2): paths are relative to the working directory, and both names are exchanged."""
_NO_EXCHANGE: Final = (errno.ENOSYS, errno.EINVAL)
"""Errors if the C library, the kernel or the file system does not support renameat2 with RENAME_EXCHANGE."""


@dataclass(frozen=True, slots=True)
class RestoredGateway:
    """Result of a restore."""

    manifest: BackupManifest
    before: Path | None
    """Path of the old directory; None if it did not exist or was removed."""


def restore(
    source: IO[bytes], data_dir: Path, *, replace: bool = False, remove: bool = False, most: int | None = None
) -> RestoredGateway:
    """Restore a backup of at most `most` bytes as a data directory that no gateway uses.

    A directory with content is replaced only with `replace`. It is kept next to the new one as NAME.before-restore, or
    removed with `remove`. Raises `BackupRefused`; then nothing was changed.
    """
    place = data_dir.resolve()  # systemd may have created a link there
    if place.is_mount():
        raise BackupRefused(f"{place} is a mount point, which cannot be exchanged; use a directory below it")
    try:
        with _held(place) as occupied:
            if occupied and not replace:
                raise BackupRefused(f"{place} is not empty; --replace puts the backup in its place and keeps it")
            draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.restore-"))
            try:
                manifest = extract(source, draft, most)
                check_journal(draft)
                check_clients(draft)
                check_streams(draft)
                adapt(draft, place)
                settle(draft, place)
                exchange(draft, place)
            except BaseException:
                if not (draft / LOCK_NAME).exists():  # otherwise it is the old directory
                    shutil.rmtree(draft, ignore_errors=True)
                raise
            with contextlib.suppress(OSError):
                durable.sync_directory(place.parent)
        # From here on the backup is in place, and the draft is the old directory.
        if not occupied or remove:
            shutil.rmtree(draft, ignore_errors=True)
            return RestoredGateway(manifest, None)
        kept = _free_name(place)
        draft.rename(kept)
        with contextlib.suppress(OSError):
            durable.sync_directory(place.parent)
        return RestoredGateway(manifest, kept)
    except DataDirectoryRefused as error:
        raise BackupRefused(error.description) from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupRefused(f"This is not a backup, or a damaged one: {error}") from error
    except (OSError, sqlite3.Error) as error:
        where = getattr(error, "filename", None) or place
        raise BackupRefused(
            f"The backup could not be put back: {where}: {getattr(error, 'strerror', None) or error}"
        ) from error


@contextlib.contextmanager
def _held(place: Path) -> Iterator[bool]:
    """Create the directory if necessary and lock it against gateways. Yields whether it has content."""
    made = not place.exists()
    lock = DirectoryLock(place)
    try:
        yield any(path.name != LOCK_NAME for path in place.iterdir())
    except BaseException:
        if made:
            (place / LOCK_NAME).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it has content
                place.rmdir()
        raise
    finally:
        lock.release()


def extract(source: IO[bytes], draft: Path, most: int | None = None) -> BackupManifest:
    """Extract all files of the archive and verify them against the manifest.

    `most`: bytes of all files together; None: no limit. Raises `BackupRefused`, and the errors of `tarfile`.
    """
    left = most
    found: dict[str, tuple[int, str]] = {}
    manifest: BackupManifest | None = None
    with tarfile.open(fileobj=source, mode="r|gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            # Only regular files are allowed, and the manifest must be the last one.
            if content is None or manifest is not None:
                raise BackupRefused(f"This is not a backup: it must not contain {member.name!r}")
            if member.name == MANIFEST:
                manifest = BackupManifest.from_json(content.read(LONGEST_MANIFEST))
                continue
            name = member.name.removeprefix(DATA)
            if name == member.name or not is_safe(name) or name in (LOCK_NAME, *found):
                raise BackupRefused(f"This is not a backup: {member.name!r} is not a valid name")
            if left is not None:
                left -= member.size
                if left < 0:
                    raise BackupRefused(
                        f"The backup needs more than {most:,} bytes, for which the disk has no room. Files of earlier "
                        "restores (before-restore) take space, too"
                    )
            found[name] = _put(content, draft / name)
    if manifest is None:
        raise BackupRefused("The backup is damaged or not whole: its end is missing")
    _check(found, manifest)
    for entry in manifest.files:
        # The files have secrets, and the gateway must be able to use them, whatever the manifest says.
        (draft / entry.path).chmod(entry.mode & 0o700 | 0o600)
    return manifest


def _put(content: IO[bytes], path: Path) -> tuple[int, str]:
    """Write a file; return its size and SHA-256."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    summed, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while chunk := content.read(_CHUNK):
            summed.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return size, summed.hexdigest()


def _check(found: dict[str, tuple[int, str]], manifest: BackupManifest) -> None:
    said: dict[str, ArchiveEntry] = {entry.path: entry for entry in manifest.files}
    for name in sorted(found.keys() | said.keys()):
        entry = said.get(name)
        if entry is None or found.get(name) != (entry.size, entry.sha256):
            raise BackupRefused(f"The backup is damaged: {name} is not what its manifest says")
    if JOURNAL not in said:
        raise BackupRefused(f"The backup is not that of a gateway: {JOURNAL} is missing")


def check_journal(draft: Path) -> None:
    """Verify the extracted data as the gateway does at its start. Raises `BackupRefused`."""
    try:
        sqlite_schema.verify(draft / JOURNAL)
    except DataDirectoryRefused as error:
        # The remedy in the description is for a data directory.
        fault = error.fault if isinstance(error, DataDamaged) else ""
        raise _unusable(draft, fault or error.description) from error


def check_clients(draft: Path, caller: str | None = None) -> None:
    """Open the extracted clients as the gateway does at its start.

    `caller`: name of a registered client that must be among them; None: the backup need not have clients. Raises
    `BackupRefused`.
    """
    registered: set[str] = set()
    if (draft / CLIENTS).exists():
        try:
            database = ClientDatabase(draft)
            try:
                registered = {client.identity for client in ClientRegistry(database).all() if client.client_id}
            finally:
                database.close()
        except EdgeError as error:
            raise _unusable(draft, error.description.partition(". ")[0]) from error
    if caller is not None and caller not in registered:
        raise BackupRefused(
            f"The backup does not have the client {caller}, so that client could not sign in afterwards. Restore it "
            "with the clients and certificates that the gateway has now (`clients=keep`, --keep-clients)"
        )


def check_streams(draft: Path) -> None:
    """Open the extracted streams as the gateway does at its start, and give their queries new identifiers.

    The queries make the reports since the backup again, with other content. Raises `BackupRefused`.
    """
    if not (draft / STREAMS).exists():
        return
    try:
        with contextlib.closing(StreamStore(draft)) as store, store.transaction():
            store.renew_identifiers()
    except EdgeError as error:
        # The remedies of the gateway are for its own file, and not for one in an archive.
        reason = error.description.partition(". ")[0]
        remedy = "Install the version of sepa-edge that made the backup, or restore another backup"
        raise _unusable(draft, f"{reason}. {remedy}") from error


def _unusable(draft: Path, reason: str) -> BackupRefused:
    inside = reason.replace(f"{draft}/", "").replace("\n", " ")
    return BackupRefused(f"The backup cannot be used: {inside}")


def adapt(draft: Path, old: Path, *, same_clients: bool = False) -> None:
    """Adapt the extracted files that must differ from those of the backup, before they replace those of `old`.

    `same_clients`: the clients are those of `old` already.
    """
    # OSCORE sequence numbers must not repeat with one key (RFC 8613, section 7.2): skip those used since the backup.
    if not same_clients and (draft / CLIENTS).exists():
        leap(draft / CLIENTS)
    last_run.restored(old, draft, __version__)


def settle(draft: Path, place: Path) -> None:
    """Give the files below `draft` to the owner of the data directory `place`, and make them durable."""
    owner = place.stat()
    draft.chmod(0o700)
    for directory, _, names in os.walk(draft):
        for path in (Path(directory), *(Path(directory, name) for name in names)):
            if os.geteuid() == 0:
                os.chown(path, owner.st_uid, owner.st_gid)
        durable.sync_directory(Path(directory))


def _free_name(place: Path) -> Path:
    number, kept = 1, place.with_name(f"{place.name}.before-restore")
    while kept.exists():
        number += 1
        kept = place.with_name(f"{place.name}.before-restore-{number}")
    return kept


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two directories of one file system. Raises `OSError`; then nothing has changed.

    Without support by the file system, `other` is missing for a short time.
    """
    code = _renameat2(one, other)
    if code == 0:
        return
    if code not in _NO_EXCHANGE:
        raise OSError(code, os.strerror(code), str(other))
    # Three renames. If the second one fails, the first is undone.
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        aside.rename(other)
        raise
    aside.rename(one)


def _renameat2(one: Path, other: Path) -> int:
    """Return 0, or the error number."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOSYS
    failed = call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE))
    return ctypes.get_errno() if failed else 0
