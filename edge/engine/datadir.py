"""The data directory: one gateway at a time may use it, and what is not in order there is refused, never repaired."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import ClassVar

from edge.protocol.errors import EdgeError

LOCK_NAME = "lock"
"""The file whose lock says that a gateway uses the directory. It holds that gateway's process id, for people."""


class DataDirectoryRefused(EdgeError):
    """The data directory cannot be used as it is; nothing that was stored in it has been changed."""

    error: ClassVar[str] = "data_refused"
    status_code: ClassVar[int] = 503


class DirectoryLock:
    """The right to use one data directory, held until `release` or the end of the process, however it ends.

    The kernel holds it (`flock`), so `kill -9` or a power cut leaves no stale lock behind.
    """

    def __init__(self, directory: Path) -> None:
        """Create the directory where it is missing, and take its lock.

        Raises `DataDirectoryRefused` when it cannot be created or written, or when another gateway holds it.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            reason = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise DataDirectoryRefused(
                f"The data directory {directory} cannot be used: {reason}."
                " Name a directory that this user may write to, or correct its owner and mode."
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise DataDirectoryRefused(
                f"The data directory {directory} is in use by another gateway (process {holder})."
                " Stop that one first, or give this one a directory of its own."
            ) from None
        except OSError as error:
            os.close(self._descriptor)
            raise DataDirectoryRefused(
                f"The data directory {directory} cannot be locked: {error.strerror}."
                " It must be on a file system with locks and some room, usually a local disk."
            ) from error

    def release(self) -> None:
        """Let another gateway have the directory. Call it once."""
        os.close(self._descriptor)
