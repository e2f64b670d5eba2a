"""The code with which a new gateway's operator comes in, as the page shows it for a while after each start.

Who can start the box anew can see it: who stands before it. Who asks later, or from another network, is told so.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from pathlib import Path

from edge.security.clients import Clients

_TEREDO = ipaddress.ip_network("2001::/32")
"""IPv6 through tunnels (RFC 4380), from anywhere; older versions of Python call it private."""


class Enrolment:
    """One code, in a file that others put there (`edge clients invite`), until somebody has used it."""

    def __init__(
        self, clients: Clients, file: Path | None, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The page shows the code of `file` for so many `seconds` from now; 0: never."""
        self._clients = clients
        self._file = file
        self._clock = clock
        self._ends = clock() + seconds if seconds else 0.0

    def to_message(self, peer: str, here: str) -> dict[str, str]:
        """What somebody at the address `peer` is told who came to the address `here`.

        `state` is "none" where no code waits to be used, "closed" where one does, but is not told, or "open", with
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
            # Nothing that one could wait for, such as a pipe.
            return self._file.read_text(encoding="utf-8").strip() if self._file and self._file.is_file() else ""
        except (OSError, UnicodeDecodeError):
            return ""  # nobody has made one, or it was used and taken away


def is_near(peer: str, here: str) -> bool:
    """Whether an address is of a network that is not the whole internet's, or of the very network of `here`."""
    try:
        address, mine = (ipaddress.ip_address(text.partition("%")[0]) for text in (peer, here))
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address in _TEREDO:
        return False
    if address.is_private or address.is_link_local or address.is_loopback:
        return True
    return address.version == mine.version == 6 and address.packed[:8] == mine.packed[:8]
