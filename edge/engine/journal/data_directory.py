"""The data directory: only one gateway may use it at a time. A faulty directory is refused, never repaired."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import ClassVar, NoReturn

from edge.protocol.errors import EdgeError

LOCK_NAME = "lock"
"""Lock file of the directory. It contains the process id of the gateway, for the operator."""

DATABASE_NAME = "edge.sqlite3"
"""The journal file. It is locked too, because users delete lock files."""


class DataDirectoryRefused(EdgeError):
    """The data directory cannot be used as it is. Stored data is unchanged."""

    error: ClassVar[str] = "data_refused"
    status_code: ClassVar[int] = 503


class DataDamaged(DataDirectoryRefused):
    """The data directory belongs to this gateway, but its journal file is damaged: see `rescue.py`."""

    fault = ""
    """The problem as a sentence, without the remedy."""


class DirectoryLock:
    """Exclusive lock of one data directory, held until `release` or the end of the process.

    The kernel holds it (`flock`), so no stale lock remains after `kill -9` or a power cut. There are two locks: on the
    file `lock` and on the journal file, because a second gateway would create another `lock` after a user deleted the
    first. Both locks belong to the inode. SQLite uses POSIX locks on the journal file, which `flock` does not affect.
    But closing any descriptor of that file drops the POSIX locks, so `release` must follow the close by SQLite.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory if it is missing, and lock it.

        Raises `DataDirectoryRefused` if it cannot be created or written, or if another gateway holds a lock.
        """
        self._directory = directory
        self._descriptors: list[int] = []
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            reason = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise DataDirectoryRefused(
                f"The data directory {directory} cannot be used: {reason}."
                " Name a directory that this user may write to, or correct its owner and mode."
            ) from error
        try:
            self._take(descriptor)
            self.take_database()
            # Only with the lock: the file may contain the process id of another gateway.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            self.release()
            self._refuse(error)
        except BaseException:
            self.release()
            raise

    def take_database(self) -> None:
        """Lock the journal file if it exists. Must be called again after the file was created."""
        try:
            descriptor = os.open(self._directory / DATABASE_NAME, os.O_RDONLY)
        except OSError:
            return  # it is missing, or opening it will raise the error
        self._take(descriptor)

    def _take(self, descriptor: int) -> None:
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = holder_of(os.fstat(descriptor).st_ino) or self._noted_holder() or "unknown"
            raise DataDirectoryRefused(
                f"The data directory {self._directory} is in use by another gateway (process {holder})."
                " Stop that one first, or give this one a directory of its own."
            ) from None
        except OSError as error:
            self._refuse(error)

    def _noted_holder(self) -> str:
        """Return the process id from the lock file, for systems without /proc/locks."""
        return os.pread(self._descriptors[0], 32, 0).decode("ascii", "replace").strip()

    def _refuse(self, error: OSError) -> NoReturn:
        raise DataDirectoryRefused(
            f"The data directory {self._directory} cannot be locked: {error.strerror}."
            " It must be on a file system with locks and free space, usually a local disk."
        ) from error

    def release(self) -> None:
        """Release the locks."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def holder_of(inode: int, locks: str | None = None) -> int | None:
    """Return the process that holds the `flock` on an inode, or None. `locks`: the content of /proc/locks."""
    if locks is None:
        try:
            locks = Path("/proc/locks").read_text(encoding="ascii")
        except OSError:
            return None
    for line in locks.splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 08:02:1234 0 EOF
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return None
