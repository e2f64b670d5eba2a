"""Invitation code for the operator of a new gateway, which the dashboard page shows for some time after each start.

Anyone with physical access can restart the device and see it. Later requests, and those from another network, get the
state "closed".
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from pathlib import Path

from edge.security.clients import ClientRegistry

_TEREDO = ipaddress.ip_network("2001::/32")
"""IPv6 tunnels (RFC 4380), reachable from anywhere; older versions of Python call them private."""


class Enrolment:
    """An invitation code in a file (from `edge clients invite`), until it is used."""

    def __init__(
        self, clients: ClientRegistry, file: Path | None, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The page shows the code of `file` for `seconds` from now; 0: never."""
        self._clients = clients
        self._file = file
        self._clock = clock
        self._ends = clock() + seconds if seconds else 0.0

    def to_message(self, peer: str, here: str) -> dict[str, str]:
        """Return the message for a client at the address `peer` that connected to the address `here`.

        `state` is "none" without a valid code, "closed" if there is one but the client may not see it, or "open", with
        `code`.
        """
        code = self._code()
        if not code or not self._clients.awaits(code):
            return {"state": "none"}
        if self._clock() >= self._ends or not is_near(peer, here):
            return {"state": "closed"}
        return {"state": "open", "code": code}

    def _code(self) -> str:
        try:
            # Only regular files: reading a pipe would block.
            return self._file.read_text(encoding="utf-8").strip() if self._file and self._file.is_file() else ""
        except (OSError, UnicodeDecodeError):
            return ""  # not created yet, or used and removed


def is_near(peer: str, here: str) -> bool:
    """Return whether an address is private, or in the same network as `here`."""
    try:
        address, mine = (ipaddress.ip_address(text.partition("%")[0]) for text in (peer, here))
    except ValueError:
        return False
    # Sockets for both versions show IPv4 clients with mapped addresses (RFC 4291, section 2.5.5.2).
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address in _TEREDO:
        return False
    if address.is_private or address.is_link_local or address.is_loopback:
        return True
    # Home networks with IPv6 have public addresses. The first 64 bits are those of the network (RFC 4291, section
    # 2.5.1).
    return address.version == mine.version == 6 and address.packed[:8] == mine.packed[:8]
