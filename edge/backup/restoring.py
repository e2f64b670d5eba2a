"""Putting a backup back: checked as a whole beside the data directory, which it then takes the place of in one step."""

from __future__ import annotations

import contextlib
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
    BackupRefused,
    Manifest,
    is_safe,
)
from edge.backup.exchange import exchange
from edge.engine.journal import sqlite_schema
from edge.engine.journal.data_directory import LOCK_NAME, DataDirectoryRefused, DirectoryLock
from edge.security.oscore import leap
from edge.security.store import NAME as CLIENTS

_CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of it."""

    manifest: Manifest
    before: Path | None
    """Where the directory is that was there before; None: there was none, or it is removed."""


def restore(source: IO[bytes], data_dir: Path, *, replace: bool = False, remove: bool = False) -> Restored:
    """Put a backup in the place of a data directory that no gateway uses.

    One that holds something already is replaced only where `replace` says so; it is kept beside it as
    NAME.before-restore, or removed where `remove` says so. Raises `BackupRefused`; all is as it was then.
    """
    place = data_dir.resolve()  # systemd may have put a link there
    if place.is_mount():
        raise BackupRefused(f"{place} is a mount point, which cannot be exchanged; use a directory below it")
    try:
        with _held(place) as occupied:
            if occupied and not replace:
                raise BackupRefused(f"{place} is not empty; --replace puts the backup in its place and keeps it")
            draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.restore-"))
            try:
                manifest = _extract(source, draft)
                _make_ready(draft, place)
                exchange(draft, place)
            except BaseException:
                if not (draft / LOCK_NAME).exists():  # else it is what was there before
                    shutil.rmtree(draft, ignore_errors=True)
                raise
            with contextlib.suppress(OSError):
                durable.sync_directory(place.parent)
        # From here on the backup is in place, and the draft holds what was there before.
        if not occupied or remove:
            shutil.rmtree(draft, ignore_errors=True)
            return Restored(manifest, None)
        kept = _free_name(place)
        draft.rename(kept)
        with contextlib.suppress(OSError):
            durable.sync_directory(place.parent)
        return Restored(manifest, kept)
    except DataDirectoryRefused as error:
        raise BackupRefused(error.description) from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BackupRefused(f"The backup is damaged, or none: {error}") from error
    except (OSError, sqlite3.Error) as error:
        where = getattr(error, "filename", None) or place
        raise BackupRefused(
            f"The backup could not be put back: {where}: {getattr(error, 'strerror', None) or error}"
        ) from error


@contextlib.contextmanager
def _held(place: Path) -> Iterator[bool]:
    """The directory, made where it is missing, while no gateway can use it; whether there is something in it."""
    made = not place.exists()
    lock = DirectoryLock(place)
    try:
        yield any(path.name != LOCK_NAME for path in place.iterdir())
    except BaseException:
        if made:
            (place / LOCK_NAME).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there is something in it
                place.rmdir()
        raise
    finally:
        lock.release()


def _extract(source: IO[bytes], draft: Path) -> Manifest:
    """All files of the archive, each as its manifest says."""
    found: dict[str, tuple[int, str]] = {}
    manifest: Manifest | None = None
    with tarfile.open(fileobj=source, mode="r|gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or manifest is not None:
                raise BackupRefused(f"This is no backup: {member.name!r} does not belong into one")
            if member.name == MANIFEST:
                manifest = Manifest.from_json(content.read(LONGEST_MANIFEST))
                continue
            name = member.name.removeprefix(DATA)
            if name == member.name or not is_safe(name) or name in (LOCK_NAME, *found):
                raise BackupRefused(f"This is no backup: {member.name!r} is no name of a file in one")
            found[name] = _put(content, draft / name)
    if manifest is None:
        raise BackupRefused("The backup is not whole: its end is missing")
    _check(found, manifest)
    for entry in manifest.files:
        (draft / entry.path).chmod(entry.mode)
    return manifest


def _put(content: IO[bytes], path: Path) -> tuple[int, str]:
    """Size and SHA-256 of what was written."""
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


def _check(found: dict[str, tuple[int, str]], manifest: Manifest) -> None:
    said: dict[str, ArchiveEntry] = {entry.path: entry for entry in manifest.files}
    for name in sorted(found.keys() | said.keys()):
        entry = said.get(name)
        if entry is None or found.get(name) != (entry.size, entry.sha256):
            raise BackupRefused(f"The backup is damaged: {name} is not what its manifest says")
    if JOURNAL not in said:
        raise BackupRefused(f"The backup is none of a gateway: it has no {JOURNAL}")


def _make_ready(draft: Path, place: Path) -> None:
    """Verify what the gateway would, and give the files to whom the data directory belongs."""
    try:
        sqlite_schema.verify(draft / JOURNAL)
    except DataDirectoryRefused as error:
        raise BackupRefused(f"The backup cannot be used: {error.description}") from error
    if (draft / CLIENTS).exists():
        leap(draft / CLIENTS)
    last_run.restored(place, draft, __version__)
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
