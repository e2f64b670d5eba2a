"""Token buckets: a rate limit for each client, for example of requests, steps or seconds of evaluation."""

from __future__ import annotations

from typing import Final

from edge.engine.admission.fair_share import GATEWAY

_EVICT_AT: Final = 1_000
"""Number of tracked clients at which those with a full bucket are evicted."""


class TokenBuckets:
    """One token bucket for each client. Times are seconds of a monotonic clock. The gateway itself has no limit."""

    def __init__(self, rate: float, burst: float) -> None:
        """`rate`: units a second on average, 0: unlimited. `burst`: units at once."""
        self._per_unit = 1 / rate if rate else 0.0
        self._slack = burst * self._per_unit
        self._full_at: dict[str, float] = {}
        """By client: time at which its bucket will be full again (generic cell rate algorithm), so nothing refills it.
        """
        self._evict_at = _EVICT_AT

    def limits(self, client: str) -> bool:
        """Return whether a client has a limit at all. If not, the caller can save the look at its clock."""
        return self._per_unit > 0 and client != GATEWAY

    def full_at(self, client: str) -> float:
        """Return the time at which the bucket of a client will be full again; 0 if it is."""
        return self._full_at.get(client, 0.0)

    def delay(self, client: str, now: float, units: float = 0.0) -> float:
        """Return the seconds until a client is within its rate, after it has used `units` more; 0 if it is now."""
        if not self._per_unit or client == GATEWAY:
            return 0.0
        full_at = self._full_at.get(client, 0.0)
        if units:
            full_at = max(full_at, now) + units * self._per_unit
        return max(0.0, full_at - now - self._slack)

    def spend(self, client: str, units: float, now: float) -> None:
        """Count used units. They may exceed the rate, because their number may be known only afterwards."""
        if not self._per_unit or client == GATEWAY:
            return
        self._full_at[client] = max(self._full_at.get(client, 0.0), now) + units * self._per_unit
        if len(self._full_at) > self._evict_at:
            self._full_at = {client: at for client, at in self._full_at.items() if at > now}
            self._evict_at = max(_EVICT_AT, 2 * len(self._full_at))
