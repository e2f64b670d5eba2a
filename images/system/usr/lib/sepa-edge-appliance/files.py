"""How the box writes what must not be lost, or seen by others."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def write(file: Path, content: str | bytes, owner: str, mode: int) -> None:
    """Atomically, on the disk when it returns, never readable by others in between. What a group may read is root's.

    What is there already is not written again.
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
    new.rename(file)
