"""Durable changes of files and directories.

A power cut may lose every change that the file system has not written yet: up to 30 seconds of them (`commit=30`), and
not always in their order. The changes of each function here are on the disk when it returns. A power cut before that
leaves either the old or the new state. So the steps of a procedure stay in order.
"""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path


def write(file: Path, content: str | bytes, owner: str, mode: int) -> None:
    """Replace a file atomically, without exposing the content in between. Root owns files that a group may read.

    A file that already has this content, owner and mode is not written again.
    """
    data = content if isinstance(content, bytes) else content.encode()
    user = pwd.getpwnam(owner)
    uid = pwd.getpwnam("root" if mode & 0o040 else owner).pw_uid
    if file.is_file() and not file.is_symlink() and file.read_bytes() == data:
        found = file.stat()
        if (found.st_uid, found.st_gid, found.st_mode & 0o777) == (uid, user.pw_gid, mode):
            return
    new = file.with_name(file.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
        os.fchown(descriptor, uid, user.pw_gid)
        os.fchmod(descriptor, mode)
        out.flush()
        os.fsync(descriptor)
    rename(new, file)


def write_in_place(file: Path, content: bytes) -> None:
    """Overwrite a file in place: for secrets, whose old text must not remain on the disk, and for the boot loader.

    A power cut may leave part of the new content, unless it fits into one sector.
    """
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as out:
        out.write(content)
        out.truncate()
        out.flush()
        os.fsync(out.fileno())
    sync_directory(file.parent)


def rename(old: Path, new: Path) -> None:
    """Rename a file or directory within its directory; a file with the new name is replaced."""
    old.rename(new)
    sync_directory(new.parent)


def remove(file: Path) -> None:
    """Remove a file, which may be missing."""
    if file.exists() or file.is_symlink():
        file.unlink()
        sync_directory(file.parent)


def remove_tree(directory: Path) -> None:
    """Remove a directory tree, which may be missing. It is renamed first, so that no partial content is visible."""
    aside = removed(directory)
    shutil.rmtree(aside, ignore_errors=True)
    if directory.exists():
        rename(directory, aside)
        shutil.rmtree(aside, ignore_errors=True)


def removed(directory: Path) -> Path:
    """Return the name of a directory during its removal. A power cut may leave this directory behind."""
    return directory.with_name(directory.name + ".removed")


def make_directory(directory: Path, owner: str, mode: int) -> None:
    """Make a directory, unless it exists."""
    if not directory.is_dir():
        directory.mkdir(mode=mode)
        sync_directory(directory.parent)
    user = pwd.getpwnam(owner)
    os.chown(directory, user.pw_uid, user.pw_gid)


def sync_directory(directory: Path) -> None:
    """Sync the entries of a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
