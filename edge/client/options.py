"""Options of a client, shared by all its connections."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from edge.backoff import Backoff
from edge.client.authorization import TokenSource
from edge.client.errors import ClientError

ConnectionListener = Callable[[str, bool], None]
"""Called with the URL of a WebSocket, and whether it is connected now."""

FailureHandler = Callable[[ClientError], bool]
"""Called with a failure from which the client can recover. Returns whether to do so."""

Locator = Callable[[str], str]
"""Returns the current URL of a broker's WebSocket. Called with the URL that was used last."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a client. The defaults suit a gateway on the local network."""

    token: TokenSource | None = None
    """Returns the Bearer token. Called again when the broker rejects the current one."""

    timeout: float = 60.0
    """Timeout of a request in seconds, including the wait for an unreachable broker."""

    backoff: Backoff = field(default_factory=Backoff)
    """Back-off between attempts to connect."""

    ping: float = 10.0
    """Heartbeat timeout in seconds: a peer that does not answer a ping in this time counts as disconnected."""

    waiting: int = 100
    """Notifications that may wait for the application. Further ones are merged into the last one (conflation). Further
    reports of continuous queries are not read, and wait at the gateway.
    """

    in_flight: int = 100
    """Unanswered requests on a WebSocket. Further ones wait."""

    on_connection: ConnectionListener | None = None
    """Called when a WebSocket opens or breaks, on the event loop: it must not block. `SyncClient` uses a thread."""

    on_failure: FailureHandler | None = None
    """Decides after a failure whether the client continues; None: always. Called on the event loop: it must not block.

    The failure is `NoConnection`, `Refused` (a subscription was refused or ended, and is repeated), or `BadAnswer` (an
    invalid message, which is skipped). If the handler returns False, the client does not repeat the attempt: the
    subscriptions and waiting requests that the failure concerns raise it. The next request connects again.
    """

    locate: Locator | None = None
    """Looks up the address before each attempt to connect, for brokers whose port changes. Runs on its own thread."""

    tls: ssl.SSLContext | None = None
    """TLS context for `https` and `wss`; None: the authorities that the system trusts."""

    def __post_init__(self) -> None:
        if self.waiting < 1 or self.in_flight < 1:
            raise ValueError("waiting and in_flight must be at least 1")
        if self.timeout <= 0 or self.ping <= 0:
            raise ValueError("timeout and ping must be more than 0 seconds")
