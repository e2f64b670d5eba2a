"""State of the outbox and its shipper for users, monitors and programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from edge.outbox.outbox import Outbox

if TYPE_CHECKING:
    from edge.outbox.shipper import Shipper


_STUCK: Final = 600.0
"""Seconds without an answer of the landing zone after which it counts as unreachable. A hung mount reports no error."""


class ShipmentStatus:
    """State of an outbox and its shipper. Values from disk are read by `refresh`, not on each access."""

    def __init__(
        self, outbox: Outbox, shipper: Shipper | None, to: str, *, now: Callable[[], float] = time.time
    ) -> None:
        """`shipper` is None if shipping is off. `to`: the landing zone. `now`: clock in seconds since 1970."""
        self._outbox = outbox
        self._shipper = shipper
        self._to = to
        self._now = now
        self._seen: tuple[int, int, bool] | None = None
        self.oldest_time: int | None = None
        """Time of the oldest waiting observation in microseconds since 1970; None if none waits."""
        self.dropped = 0
        """Observations that were dropped at the disk cap, and whose tombstones are not acknowledged."""

    @property
    def stale(self) -> bool:
        """Whether the oldest observation has changed since `refresh`."""
        return self._seen != self._look()

    def refresh(self) -> None:
        """Read the values on disk. Raises `DamagedDatabase`, `OSError`."""
        seen = self._look()
        self.oldest_time = self._outbox.oldest_time
        self.dropped = sum(lost.last - lost.first + 1 for lost in self._outbox.lost())
        self._seen = seen

    def _look(self) -> tuple[int, int, bool]:
        return self._outbox.acknowledged, self._outbox.oldest, self._outbox.count > 0

    @property
    def state(self) -> str:
        """`ships`, `fails`, or `off` if shipping is not configured."""
        if self._shipper is None:
            return "off"
        return "fails" if self.reason else "ships"

    @property
    def reason(self) -> str:
        """Why nothing is shipped; empty without a problem."""
        shipper = self._shipper
        if shipper is None:
            return ""
        waits_since = shipper.waits_since
        if waits_since is not None and self._now() - waits_since > _STUCK:
            return f"{self._to} has not answered for {self._now() - waits_since:.0f} s"
        return shipper.failure

    @property
    def oldest_age(self) -> float:
        """Age of the oldest waiting observation in seconds; 0 if none waits."""
        return 0.0 if self.oldest_time is None else max(0.0, self._now() - self.oldest_time / 1e6)

    @property
    def shipped(self) -> int:
        """The last observation that the landing zone has, as far as known."""
        return self._outbox.acknowledged if self._shipper is None else self._shipper.known.last

    @property
    def segments(self) -> int:
        """Segments shipped since the start."""
        return 0 if self._shipper is None else self._shipper.segments

    @property
    def failures(self) -> int:
        """Failed attempts to ship since the start."""
        return 0 if self._shipper is None else self._shipper.failures

    def to_message(self) -> dict[str, object]:
        """Return the state as JSON. Times are in microseconds since 1970, or null."""
        outbox, shipper = self._outbox, self._shipper
        acknowledged_at = None if shipper is None else shipper.acknowledged_at
        return {
            "gateway": outbox.gateway,
            "epoch": outbox.epoch,
            "to": self._to,
            "state": self.state,
            "reason": self.reason,
            "observations": outbox.count,
            "bytes": outbox.bytes,
            "oldest": self.oldest_time,
            "dropped": self.dropped,
            "last": outbox.last,
            "shipped": self.shipped,
            "acknowledged": outbox.acknowledged,
            "acknowledged_at": None if acknowledged_at is None else round(acknowledged_at * 1e6),
            "segments": self.segments,
            "failures": self.failures,
        }
