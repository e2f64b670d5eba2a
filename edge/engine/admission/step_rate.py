"""Step rate: limits the steps that the updates of each client may take on average (token bucket)."""

from __future__ import annotations

from typing import Final

from edge.engine.admission.slots import GATEWAY

_LOOK: Final = 1_000
"""Number of clients from which those with a full bucket are evicted."""


class StepRate:
    """One token bucket for each client. Times are microseconds of a monotonic clock."""

    def __init__(self, rate: int, burst: int) -> None:
        """`rate`: steps a second, 0: unlimited. `burst`: steps at once."""
        self._per_step = 1_000_000 / rate if rate else 0.0
        self._slack = burst * self._per_step
        self._full: dict[str, float] = {}
        """By client: time at which its bucket will be full again."""
        self._look_at = _LOOK

    def spend(self, source: str, steps: int, now: int) -> None:
        """Take steps from a client's bucket. It may be overdrawn, because the number is known only afterwards."""
        if not self._per_step or source == GATEWAY:
            return
        # A bucket is stored as the time at which it is full, so no refill is needed.
        self._full[source] = max(self._full.get(source, now), now) + steps * self._per_step
        if len(self._full) > self._look_at:
            self._full = {client: full for client, full in self._full.items() if full > now}
            self._look_at = max(_LOOK, 2 * len(self._full))

    def overdrawn(self, source: str, now: int) -> bool:
        """Return whether a client has exceeded its rate."""
        return self._full.get(source, 0.0) - now > self._slack
