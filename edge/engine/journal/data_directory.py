"""The data directory: one gateway at a time may use it, and what is not in order there is refused, never repaired."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import ClassVar, NoReturn

from edge.protocol.errors import EdgeError

LOCK_NAME = "lock"
"""The file whose lock says that a gateway uses the directory. It holds that gateway's process id, for people."""

DATABASE_NAME = "edge.sqlite3"
"""The journal file. It is locked as well: people remove lock files."""


class DataDirectoryRefused(EdgeError):
    """The data directory cannot be used as it is; nothing that was stored in it has been changed."""

    error: ClassVar[str] = "data_refused"
    status_code: ClassVar[int] = 503


class DataDamaged(DataDirectoryRefused):
    """The data directory is the gateway's own, and something in its journal file cannot be read: see `rescue.py`."""

    fault = ""
    """What is wrong, in a sentence, without the remedy."""


class DirectoryLock:
    """The right to use one data directory, held until `release` or the end of the process, however it ends.

    The kernel holds it (`flock`), so `kill -9` or a power cut leaves no stale lock behind. There are two locks: one on
    the file `lock`, and one on the journal file itself, since a second gateway would make another `lock` if somebody
    removed the first. Both follow the inode. SQLite has its own locks (POSIX) on that file, which `flock` does not
    touch; but closing any descriptor of the file would end them, so `release` comes after SQLite has closed it.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory where it is missing, and take its locks.

        Raises `DataDirectoryRefused` when it cannot be created or written, or when another gateway holds one.
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
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            self.release()
            self._refuse(error)
        except BaseException:
            self.release()
            raise

    def take_database(self) -> None:
        """Lock the journal file, if there is one. To be called again after it has been created."""
        try:
            descriptor = os.open(self._directory / DATABASE_NAME, os.O_RDONLY)
        except OSError:
            return  # it is missing, or whoever opens it will say what is wrong with it
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
        """The process id in the lock file, for systems without /proc/locks."""
        return os.pread(self._descriptors[0], 32, 0).decode("ascii", "replace").strip()

    def _refuse(self, error: OSError) -> NoReturn:
        raise DataDirectoryRefused(
            f"The data directory {self._directory} cannot be locked: {error.strerror}."
            " It must be on a file system with locks and some room, usually a local disk."
        ) from error

    def release(self) -> None:
        """Let another gateway have the directory."""
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
