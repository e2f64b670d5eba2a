"""How the box writes what must not be lost, or seen by others."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def write(file: Path, text: str, owner: str, mode: int) -> None:
    """Atomically, on the disk when it returns, never readable by others in between. What a group may read is root's."""
    new = file.with_name(file.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
        user = pwd.getpwnam(owner)
        os.fchown(descriptor, 0 if mode & 0o040 else user.pw_uid, user.pw_gid)
        os.fchmod(descriptor, mode)
        out.flush()
        os.fsync(descriptor)
    new.rename(file)
