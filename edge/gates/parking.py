"""Subscriptions that outlive a lost connection for a while: whoever comes back to one gets what it missed, no more.

Only those that asked for it (`Subscribe.resumable`). All methods are called on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from edge.engine.requests import Delta, Notification
from edge.gates.net import Net
from edge.protocol.errors import EdgeError

if TYPE_CHECKING:
    from edge.gates.calls import Subscribe


class Parked:
    """What the client of a lost connection may not have received, and what came since, which is merged."""

    def __init__(self, call: Subscribe, unread: Sequence[Notification]) -> None:
        """`unread`: the last that were sent, or waited to be, in order."""
        self._call = call
        self._unread = unread
        self._net: Net | None = None

    def add(self, notification: Notification) -> None:
        """The subscription goes on."""
        if self._net is None:
            self._net = Net(notification)
        else:
            self._net.add(notification)

    def since(self, alias: str | None, sequence: int) -> Notification | None:
        """All that a client missed that has had everything up to `sequence`. None: that cannot be told any more."""
        call = self._call
        known = Notification(call.spuid, alias, sequence, Delta(call.variables, (), ()), merged=0)
        net = Net(known)
        for missed in self._unread if self._net is None else (*self._unread, self._net.notification()):
            if missed.sequence > net.sequence:
                if missed.sequence - missed.merged != net.sequence:
                    return None
                net.add(missed)
        return net.notification() if net.sequence == call.sequence else None


class Parking:
    """Where the resumable subscriptions of a gate are found by their spuid, those of living connections included.

    A client often is back before anybody has noticed that its connection is lost. So it may take its subscription
    from a connection that seems alive.
    """

    def __init__(self, seconds: float, limit: int, parked: Gauge) -> None:
        """Keeps up to `limit` subscriptions for `seconds` after the loss. 0: none."""
        self._seconds = seconds
        self._limit = limit
        self._count = parked
        self._calls: dict[str, Subscribe] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """Of those that are parked, the first that was parked first."""

    @property
    def open(self) -> bool:
        """Whether anything is kept at all."""
        return self._seconds > 0 and self._limit > 0

    def find(self, spuid: str) -> Subscribe | None:
        """A resumable subscription, parked or not."""
        return self._calls.get(spuid) if self.open else None

    def note(self, call: Subscribe) -> None:
        """A resumable subscription has a living connection."""
        self._calls[call.spuid] = call

    def forget(self, call: Subscribe) -> None:
        """It is over, or goes on elsewhere."""
        self._calls.pop(call.spuid, None)
        call.unwatch()
        timer = self._timers.pop(call.spuid, None)
        if timer is not None:
            timer.cancel()
            self._count.dec()

    def park(self, call: Subscribe, unread: Sequence[Notification]) -> None:
        """Its connection is lost."""
        if not self.open:
            self._end(call)
            return
        if len(self._timers) >= self._limit:
            self._end(self._calls[next(iter(self._timers))])
        call.parked = Parked(call, unread)
        self._calls[call.spuid] = call
        call.watch()
        self._timers[call.spuid] = asyncio.get_running_loop().call_later(self._seconds, self._end, call)
        self._count.inc()

    def close(self) -> None:
        """End those that are parked; park none any more."""
        self._seconds = 0.0
        for spuid in list(self._timers):
            self._end(self._calls[spuid])

    def _end(self, call: Subscribe) -> None:
        self.forget(call)
        call.drop()
        with contextlib.suppress(EdgeError):  # a stopping engine ends all of them
            call.session.shared.engine.unsubscribe(call.spuid)
