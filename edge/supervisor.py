"""What systemd is told by a service of `Type=notify` (sd_notify(3)); where nothing listens, nothing is said."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

_FRACTION: Final = 3
"""Signs of life within the time in which systemd wants one: two of them may be late."""


class Supervisor:
    """The socket at which systemd listens. No method fails: what cannot be told changes nothing here."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # abstract, unix(7)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        asked = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.longest_silence = int(asked) / 1e6 / _FRACTION if asked.isdecimal() and ours else float("inf")
        """Seconds between two signs of life at the most (sd_watchdog_enabled(3))."""

    def ready(self, status: str) -> None:
        """Everything runs. `status` is a line for `systemctl status`."""
        self._tell(READY="1", STATUS=status)

    def alive(self, status: str) -> None:
        """There is progress."""
        self._tell(WATCHDOG="1", STATUS=status)

    def stopping(self, status: str) -> None:
        """It ends, and needs a moment for that."""
        self._tell(STOPPING="1", STATUS=status)

    def close(self) -> None:
        """Say no more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, **variables: str) -> None:
        if self._socket is None:
            return
        lines = "\n".join(f"{name}={' '.join(value.split())}" for name, value in variables.items())
        with contextlib.suppress(OSError):
            self._socket.sendto(lines.encode(), self._address)
