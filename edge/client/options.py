"""How a client behaves: what all its connections share."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from edge.backoff import Backoff
from edge.client.authorization import TokenSource

ConnectionListener = Callable[[str, bool], None]
"""Told the URL of a WebSocket, and whether it is connected now."""


@dataclass(frozen=True, slots=True)
class Options:
    """All have defaults that suit a gateway near by."""

    token: TokenSource | None = None
    """Gives the Bearer token; asked again when the broker no longer takes the one it gave."""

    timeout: float = 60.0
    """Seconds within which a request is answered, waiting for a broker that is not there included."""

    backoff: Backoff = field(default_factory=Backoff)
    """How long to wait between attempts to connect."""

    ping: float = 10.0
    """Seconds: a peer that answers no ping for so long is dead."""

    waiting: int = 100
    """Notifications that wait for the application; what comes beyond is merged into the last one."""

    in_flight: int = 100
    """Requests on a WebSocket that are not answered yet; further ones wait."""

    on_connection: ConnectionListener | None = None
    """Called when a WebSocket opens or breaks, on the event loop: it must not wait. `SyncClient` uses a thread."""

    tls: ssl.SSLContext | None = None
    """For `https` and `wss`; None trusts what the machine trusts."""

    def __post_init__(self) -> None:
        if self.waiting < 1 or self.in_flight < 1:
            raise ValueError("waiting and in_flight must be at least 1")
        if self.timeout <= 0 or self.ping <= 0:
            raise ValueError("timeout and ping must be more than 0 seconds")
