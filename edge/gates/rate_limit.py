"""Rate limits and quotas of clients over all their connections and gates.

With security, a client is an identity. Without security, and before authentication, it is an IP address. All programs
on this machine share one address, so each local connection counts as a client.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.token_bucket import TokenBuckets
from edge.gates.settings import LimitSettings
from edge.listener import is_local
from edge.protocol.access import Access
from edge.protocol.errors import TooManyRequests

_ROUNDING: Final = 1e-6
"""Tolerance for rounding errors in seconds."""
_FRAME_RATE: Final = 2000.0
"""Small WebSocket frames per second and client; this many take less than a hundredth of a CPU core."""
_FRAME_BURST: Final = 20_000


class EventRate(TokenBuckets):
    """Rate of events that are refused beyond it."""

    def __init__(self, rate: float, burst: int, many: str) -> None:
        """`many`: message for excess events."""
        super().__init__(rate, burst)
        self._many = many

    def take(self, who: str, now: float) -> None:
        """Count an event at `now`, in seconds of a monotonic clock.

        Raises `TooManyRequests` if the burst is exhausted; then the event does not count.
        """
        delay = self.delay(who, now, 1) - _ROUNDING
        if delay > 0:
            raise TooManyRequests(f"{self._many}; try again later", retry_after=math.ceil(delay))
        self.spend(who, 1, now)


class RateLimit:
    """Rate limits, subscription counts and byte quotas of all clients. Belongs to the event loop."""

    def __init__(self, settings: LimitSettings, quota: ByteQuota | None = None) -> None:
        """`quota`: shared with the engine; None: a new one with the limits of `settings`."""
        self.bytes = quota or ByteQuota(settings.max_client_bytes, settings.max_total_bytes)
        """Byte quotas of the clients."""
        self._max_subscriptions = settings.max_subscriptions
        self._requests = EventRate(
            settings.rate,
            settings.burst,
            f"This client sends more than {settings.rate:g} requests a second, and {settings.burst} at once "
            "(limits.rate, limits.burst)",
        )
        self._introductions = EventRate(
            settings.oauth_rate,
            settings.oauth_burst,
            f"More than {settings.oauth_rate:g} registrations and requests for tokens a second, and "
            f"{settings.oauth_burst} at once, come from this address (limits.oauth_rate, limits.oauth_burst)",
        )
        self._frames = EventRate(_FRAME_RATE, _FRAME_BURST, "Too many small frames")
        self._subscriptions: Counter[str] = Counter()

    def request(self, who: str, now: float) -> None:
        """Count a request at `now`, in seconds of a monotonic clock.

        Raises `TooManyRequests` if the client exceeds `rate` and `burst`; then the request does not count.
        """
        self._requests.take(who, now)

    def authenticate(self, peer: str, now: float) -> None:
        """Count a registration or token request, which is expensive. Raises `TooManyRequests`."""
        self._introductions.take(peer, now)

    def frame(self, peer: str, now: float) -> None:
        """Count a WebSocket frame with little or no payload. Raises `TooManyRequests`."""
        self._frames.take(peer, now)

    def subscribe(self, who: str) -> None:
        """Count a new subscription of a client. Raises `TooManyRequests`."""
        limit = self._max_subscriptions
        if self._subscriptions[who] >= limit:
            raise TooManyRequests(
                f"This client has {limit} subscriptions on all its connections, which is the most it may have "
                "(limits.max_subscriptions); unsubscribe some"
            )
        self._subscriptions[who] += 1

    def unsubscribe(self, who: str) -> None:
        """Uncount a subscription of a client."""
        self._subscriptions[who] -= 1
        # Entries of zero would accumulate, one for each client that was ever connected.
        if not self._subscriptions[who]:
            del self._subscriptions[who]


def client_of(access: Access, peer: str) -> str:
    """Return the client of a request: its identity, or else `peer` (`peer_of`)."""
    return access.client or peer


def incoming(peer: str) -> str:
    """Return the quota account of messages that a client is sending.

    It is separate, so that a client whose subscriptions exhaust its quota can still send a message, for example to
    unsubscribe. It then gets an error instead of a closed connection.
    """
    return f"{peer} (incoming)"


def outgoing(peer: str) -> str:
    """Return the quota account of messages that wait for a client. It is separate for the same reason."""
    return f"{peer} (outgoing)"


def peer_of(host: str, port: int) -> str:
    """Return the client at an address: the address itself, or the connection for local addresses."""
    return f"{host}:{port}" if is_local(host) else host
