"""Notifications to systemd for a service of `Type=notify` (sd_notify(3)). Without systemd they have no effect."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

_FRACTION: Final = 3
"""Heartbeats within systemd's watchdog interval: two of them may be late."""


class Supervisor:
    """Notification socket of systemd. Its methods never fail: lost notifications have no effect on the gateway."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # abstract, unix(7)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        asked = environ.get("WATCHDOG_USEC", "")
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.longest_silence = int(asked) / 1e6 / _FRACTION if asked.isdecimal() and ours else float("inf")
        """Longest time between two heartbeats in seconds (sd_watchdog_enabled(3))."""

    def ready(self, status: str) -> None:
        """Report that everything runs. `status` is a line for `systemctl status`."""
        self._send(READY="1", STATUS=status)

    def alive(self, status: str) -> None:
        """Send a heartbeat."""
        self._send(WATCHDOG="1", STATUS=status)

    def stopping(self, status: str) -> None:
        """Report the begin of the stop, which takes some time."""
        self._send(STOPPING="1", STATUS=status)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, **variables: str) -> None:
        if self._socket is None:
            return
        lines = "\n".join(f"{name}={' '.join(value.split())}" for name, value in variables.items())
        with contextlib.suppress(OSError):
            self._socket.sendto(lines.encode(), self._address)
