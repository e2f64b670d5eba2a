"""Wake-up of a thread that polls descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import threading


class WakeUp:
    """A descriptor that becomes readable with `set`, as an event for `poll`. Linux only (eventfd)."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False

    def set(self) -> None:
        """Wake the thread. Thread-safe, and without effect after `close`."""
        # With the lock, because the number of a closed descriptor could be reused.
        with self._lock:
            if not self._closed:
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        """Forget the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def wait(self, seconds: float) -> None:
        """Wait for a wake-up, at most `seconds`, and forget it."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if poll.poll(seconds * 1000):
            self.clear()

    def close(self) -> None:
        """Close the descriptor. No thread may be waiting."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.fd)
