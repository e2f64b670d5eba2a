"""Size of a landing zone, measured in a thread of its own: uploads never wait for the scan of a large directory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Final

MEASURED: Final = 30.0
"""Least seconds between the end of a measurement and the start of the next one."""
_SHARE: Final = 20
"""Least ratio of the pause after a measurement and its duration."""


class LandingSize:
    """Estimate of the bytes below a directory: the last measurement, and what was added since it began.

    All methods are thread-safe. The first measurement runs in the constructor. Later ones run in a thread, which
    `current` starts if the last one is old. The estimate may be too high, because a measurement may include files that
    were added while it ran; the next measurement corrects it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._before = 0
        """Bytes of the last measurement."""
        self._added = 0
        """Bytes added since the last measurement began."""
        self._measuring = False
        self._due = 0.0
        self._measure()

    def add(self, count: int) -> None:
        """Note that a number of bytes was written."""
        with self._guard:
            self._added += count

    def current(self) -> int:
        """Return the estimate, without waiting for a measurement."""
        with self._guard:
            start = not self._measuring and time.monotonic() >= self._due
            self._measuring = self._measuring or start
            size = self._before + self._added
        if start:
            threading.Thread(target=self._measure, name="landing-size", daemon=True).start()
        return size

    def _measure(self) -> None:
        began = time.monotonic()
        with self._guard:
            earlier = self._added
        try:
            size = size_of(self._folder)
            with self._guard:
                self._before, self._added = size, self._added - earlier
        finally:
            with self._guard:
                now = time.monotonic()
                self._due = now + max(MEASURED, _SHARE * (now - began))
                self._measuring = False


def size_of(folder: Path) -> int:
    """Return the total bytes of all files below a directory."""
    size, folders = 0, [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:  # the ingester may remove files
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        size += entry.stat().st_size
    return size
