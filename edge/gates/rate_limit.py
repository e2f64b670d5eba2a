"""What one client may take of the gateway, over all its connections and gates: requests in a time, subscriptions.

A client is an identity where there is security. Where there is none, or it is not known yet, it is an address; but all
programs on this machine share one, so there it is a connection.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.gates.settings import LimitSettings
from edge.listener import is_local
from edge.protocol.access import Access
from edge.protocol.errors import TooManyRequests

_ROUNDING: Final = 1e-6
"""Seconds that do not count."""
_FRAME_RATE: Final = 2000.0
"""Small WebSocket frames a second of one client: less than a hundredth of a processor's time."""
_FRAME_BURST: Final = 20_000
_LOOK: Final = 1000
"""Clients that are remembered before it is looked who has long been quiet."""


class Rate:
    """How often each client may do something."""

    def __init__(self, rate: float, burst: int, many: str) -> None:
        """`rate` times a second in the long run, 0: any number; `burst` beyond that at once. `many`: what to say of who
        does it more often."""
        self._step = 1 / rate if rate else 0.0
        self._slack = burst * self._step + _ROUNDING
        self._many = many
        self._due: dict[str, float] = {}
        """By client: when it would have done what it has done, had it kept to its rate. It may be ahead of that."""
        self._look_at = _LOOK

    def take(self, who: str, now: float) -> None:
        """A client does it at a time, in seconds of any clock that never goes back.

        Raises `TooManyRequests` where it has done it `burst` times more than allowed; that one does not count.
        """
        if not self._step:
            return
        due = max(self._due.get(who, now), now) + self._step
        ahead = due - now - self._slack
        if ahead > 0:
            raise TooManyRequests(f"{self._many}; try again later", retry_after=math.ceil(ahead))
        self._due[who] = due
        if len(self._due) > self._look_at:
            self._due = {who: due for who, due in self._due.items() if due > now}
            self._look_at = max(_LOOK, 2 * len(self._due))


class RateLimit:
    """The allowances of all clients. It belongs to the event loop."""

    def __init__(self, settings: LimitSettings, quota: ByteQuota | None = None) -> None:
        """`quota`: shared with the engine; None: one with the limits of `settings`."""
        self.bytes = quota or ByteQuota(settings.max_client_bytes, settings.max_total_bytes)
        """Account of what is held for each client."""
        self._max_subscriptions = settings.max_subscriptions
        self._requests = Rate(
            settings.rate,
            settings.burst,
            f"This client sends more than {settings.rate:g} requests a second, and {settings.burst} at once "
            "(limits.rate, limits.burst)",
        )
        self._introductions = Rate(
            settings.oauth_rate,
            settings.oauth_burst,
            f"More than {settings.oauth_rate:g} registrations and requests for tokens a second, and "
            f"{settings.oauth_burst} at once, come from this address (limits.oauth_rate, limits.oauth_burst)",
        )
        self._frames = Rate(_FRAME_RATE, _FRAME_BURST, "Too many small frames")
        self._subscriptions: Counter[str] = Counter()

    def request(self, who: str, now: float) -> None:
        """A client sends a request at a time, in seconds of any clock that never goes back.

        Raises `TooManyRequests` where it has sent `burst` more than `rate` a second allows; that one does not count.
        """
        self._requests.take(who, now)

    def introduce(self, peer: str, now: float) -> None:
        """Somebody registers or asks for a token, which takes long. Raises `TooManyRequests`."""
        self._introductions.take(peer, now)

    def frame(self, peer: str, now: float) -> None:
        """A client sends a WebSocket frame that carries little or nothing. Raises `TooManyRequests`."""
        self._frames.take(peer, now)

    def subscribe(self, who: str) -> None:
        """A client has one more subscription, or is about to. Raises `TooManyRequests`."""
        limit = self._max_subscriptions
        if self._subscriptions[who] >= limit:
            raise TooManyRequests(
                f"This client has {limit} subscriptions on all its connections, which is the most it may have "
                "(limits.max_subscriptions); unsubscribe some"
            )
        self._subscriptions[who] += 1

    def unsubscribe(self, who: str) -> None:
        """It has one fewer."""
        self._subscriptions[who] -= 1
        if not self._subscriptions[who]:
            del self._subscriptions[who]


def client_of(access: Access, peer: str) -> str:
    """Who sent a request: `peer` is from where it came (`peer_of`)."""
    return access.client or peer


def incoming(peer: str) -> str:
    """Account of messages that are on their way from a client.

    An account of its own: a client whose subscriptions use up its limit must still be able to send a message, if only
    to unsubscribe, and gets an error for it, not the end of its connection.
    """
    return f"{peer} (incoming)"


def outgoing(peer: str) -> str:
    """Account of messages that wait for a client, likewise: a client that uses up its limit may read slowly, too."""
    return f"{peer} (outgoing)"


def peer_of(host: str, port: int) -> str:
    """The client at an address: one address, one client, but for connections on this machine."""
    return f"{host}:{port}" if is_local(host) else host
