"""Slots for the connections of a server, and the deadlines of their phases. Pure: times are passed in.

Clients without a token cost a server nothing but sockets, so these are what an attacker exhausts. A new connection
therefore replaces the oldest one that has not yet sent a valid token. Gateways keep theirs, up to a part of all slots.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

HANDSHAKE_TIME: Final = 30.0
"""Seconds for the TLS handshake, of about 5 kB with a certificate chain. `BODY_RATE` is the slowest network."""
HEADER_TIME: Final = 10.0
"""Seconds from the first byte of a request to the end of its header."""
UNKNOWN_TIME: Final = 30.0
"""Seconds for which a connection may stay open without a valid token."""
KEEP_ALIVE: Final = 30.0
"""Seconds from the end of a response to the first byte of the next request."""
REQUEST_TIME: Final = 1200.0
"""Seconds for a request with its response. Received bytes are kept, so the upload continues in another request."""
BODY_GRACE: Final = 60.0
"""Seconds after which the minimum rate of a body applies, and the longest pause."""
BODY_RATE: Final = 256
"""Minimum rate of a body in bytes per second: about that of the slowest mobile network (GPRS, under load)."""
GATEWAY_PART: Final = 4
"""A gateway may have this part of the slots: a quarter."""

C = TypeVar("C")


class ConnectionSlots(Generic[C]):
    """Open connections, at most `most`. Each method returns the connections that the caller must close."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._each = max(1, most // GATEWAY_PART)
        self._unknown: OrderedDict[C, None] = OrderedDict()
        self._gateways: dict[str, OrderedDict[C, None]] = {}
        self._owner: dict[C, str] = {}

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._unknown) + len(self._owner)

    def open(self, connection: C) -> C | None:
        """Add a new connection. Returns the one that it replaces, or itself if gateways have all slots."""
        replaced = None
        if len(self) >= self._most:
            if not self._unknown:
                return connection
            replaced, _ = self._unknown.popitem(last=False)
        self._unknown[connection] = None
        return replaced

    def authenticated(self, connection: C, gateway: str) -> C | None:
        """Note a request with the token of a gateway. Returns the gateway's oldest connection if it has too many.

        The oldest one is that with the oldest request: a gateway uses one at a time, so the oldest are broken.
        """
        if connection not in self._unknown and connection not in self._owner:
            return None  # it was replaced while its token was looked up
        self.close(connection)
        own = self._gateways.setdefault(gateway, OrderedDict())
        oldest = own.popitem(last=False)[0] if len(own) >= self._each else None
        if oldest is not None:
            del self._owner[oldest]
        own[connection] = None
        self._owner[connection] = gateway
        return oldest

    def unknown(self) -> list[C]:
        """Return the connections that have not sent a valid token, oldest first."""
        return list(self._unknown)

    def known(self, connection: C) -> bool:
        """Return whether a connection has sent a valid token."""
        return connection in self._owner

    def close(self, connection: C) -> None:
        """Remove a connection, if it is there."""
        self._unknown.pop(connection, None)
        if (gateway := self._owner.pop(connection, None)) is not None:
            own = self._gateways[gateway]
            del own[connection]
            if not own:
                del self._gateways[gateway]


def body_wait(begun: float, received: int, now: float) -> float:
    """Return the seconds for which the next part of a body may be awaited; 0 or less if the body is too slow.

    `begun` and `now` are in seconds, `received` is in bytes. A pause may take `BODY_GRACE`, and so may the first part;
    then `BODY_RATE` applies to the whole body.
    """
    return min(BODY_GRACE, begun + BODY_GRACE + received / BODY_RATE - now, begun + REQUEST_TIME - now)
