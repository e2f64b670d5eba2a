"""Resume registry: subscriptions that survive a lost connection, so that their clients can resume them.

Only subscriptions that asked for it are kept (`Subscribe.resumable`). All gates share one registry. It also holds the
subscriptions that were served before the last restart of the gateway. All methods are called on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge

from edge.engine.admission.byte_quota import ByteQuota, Charge
from edge.engine.requests import Delta, Notification, QueryRequest, Sink, SubscribeFailed
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.conflation import MergedDelta, size_of
from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import Guard
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.protocol.access import ANYBODY
from edge.protocol.errors import EdgeError, TooManyRequests

if TYPE_CHECKING:
    from edge.gates.subscriptions import Subscribe

_RESTART: Final = "restart"
"""Where a subscription was lost that the gateway served before, beside the names of the gates."""


class Feed:
    """What the engine tells of one subscription. Whom it is for can change: a client, another one, nobody yet."""

    __slots__ = ("to",)

    def __init__(self, to: Sink) -> None:
        self.to = to

    def take(self, item: Notification | SubscribeFailed) -> None:
        """Hand over what comes."""
        self.to(item)


class SuspendedSubscription:
    """A subscription without a client: what may not have arrived, and what came since, which is merged."""

    def __init__(
        self,
        feed: Feed,
        query: QueryRequest,
        spuid: str,
        variables: tuple[str, ...],
        told: int,
        unread: Sequence[Notification],
    ) -> None:
        """`told`: the last notification that was sent. `unread`: the last that were sent, or waited to be, in order."""
        self.feed = feed
        self.query = query
        self.spuid = spuid
        self.variables = variables
        self.sequence = max(told, unread[-1].sequence) if unread else told
        """Of the last notification."""
        self._told = told
        self._unread = unread
        self._unread_size = sum([size_of(missed.delta) for missed in unread])
        self._net: MergedDelta | None = None

    @property
    def size(self) -> int:
        """Bytes that the changes take that the client may have missed, about."""
        return self._unread_size + (0 if self._net is None else self._net.size)

    def add(self, notification: Notification) -> None:
        """The subscription goes on."""
        self.sequence = notification.sequence
        if self._net is None:
            self._net = MergedDelta(notification)
        else:
            self._net.add(notification)

    def since(self, alias: str | None, sequence: int) -> Notification | None:
        """All that a client missed that has had everything up to `sequence`. None: that cannot be told any more."""
        if sequence > self._told:
            return None
        net = MergedDelta(Notification(self.spuid, alias, sequence, Delta(self.variables, (), ()), merged=0))
        for missed in self._unread if self._net is None else (*self._unread, self._net.notification()):
            if missed.sequence > net.sequence:
                if missed.sequence - missed.merged != net.sequence:
                    return None
                net.add(missed)
        return net.notification() if net.sequence == self.sequence else None


class ResumeRegistry:
    """Where resumable subscriptions are found by their spuid, those of living connections included.

    A client often is back before anybody has noticed that its connection is lost. So it may take its subscription
    from a connection that seems alive.
    """

    def __init__(
        self,
        engine: SessionEngine,
        guard: Guard,
        parked: Gauge,
        *,
        seconds: float = 0.0,
        limit: int = 0,
        max_sent: int = 256 * 1024,
        quota: ByteQuota | None = None,
    ) -> None:
        """Keeps up to `limit` subscriptions for `seconds` after the loss. 0: none. `parked` counts them by gate.

        `max_sent`: characters of each connection's last notifications that are kept, for they may be lost with it:
        about what the buffers of the kernels on both ends hold. `quota` is charged for what clients have missed.
        """
        self._quota = quota or ByteQuota()
        self.max_sent = max_sent
        self._engine = engine
        self._guard = guard
        self._count = parked
        self._seconds = seconds
        self._limit = limit
        self._closed = False
        self._living: dict[str, Subscribe] = {}
        self._places: dict[str, _Place] = {}
        """Of those that are parked, the first that was parked first."""

    @property
    def open(self) -> bool:
        """Whether anything is kept at all."""
        return self._seconds > 0 and self._limit > 0 and not self._closed

    async def restore(self) -> None:
        """Take over what the gateway served before it was started anew. Nobody has come back to it yet."""
        bridge = LoopDispatcher(asyncio.get_running_loop())
        early: list[Notification | SubscribeFailed] = []
        feeds: dict[str, Feed] = {}

        def sink(spuid: str) -> Sink:
            feeds[spuid] = Feed(early.append)
            return partial(bridge.put, feeds[spuid].take)

        for one in await asyncio.wrap_future(self._engine.take_over(sink)):
            self._keep(
                SuspendedSubscription(feeds[one.spuid], one.request, one.spuid, one.variables, one.told, one.unread),
                _RESTART,
            )
        for item in early:
            feeds[item.spuid].take(item)

    def living(self, spuid: str, query: QueryRequest) -> Subscribe | None:
        """A resumable subscription that has a connection. None: there is none, or it is not what is asked."""
        call = self._living.get(spuid) if self.open else None
        return call if call is not None and not call.ending and _same(call.query, query) else None

    def note(self, call: Subscribe) -> None:
        """A resumable subscription has a living connection."""
        self._living[call.spuid] = call

    def forget(self, call: Subscribe) -> None:
        """It has not any more."""
        self._living.pop(call.spuid, None)

    def park(self, call: Subscribe, unread: Sequence[Notification]) -> None:
        """Its connection is lost. Where the gateway stops nothing is done: the engine keeps it for the next start."""
        if not self.open:
            return
        parked = parked_of(call, unread)
        place = self._keep(parked, call.session.shared.gate)
        if parked.spuid in self._places and call.access is not ANYBODY:
            place.tenure = AuthorizationWatch(
                self._guard, call.access, call.request.authorization, lambda _: self._end(parked)
            )

    def claim(self, spuid: str, query: QueryRequest) -> SuspendedSubscription | None:
        """Take one out, to go on with it. None: it is over, or not what is asked."""
        place = self._places.get(spuid)
        if place is None or not _same(place.parked.query, query):
            return None
        self._leave(place)
        return place.parked

    def close(self) -> None:
        """The gateway stops: keep nothing any more. What is kept goes on after the next start."""
        self._closed = True
        for place in list(self._places.values()):
            self._leave(place)

    def _keep(self, parked: SuspendedSubscription, gate: str) -> _Place:
        if len(self._places) >= self._limit:
            self._end(next(iter(self._places.values())).parked)
        parked.feed.to = partial(self._take, parked)
        charge = self._quota.charge(parked.query.source)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, parked)
        place = self._places[parked.spuid] = _Place(parked, timer, charge, self._count.labels(gate))
        place.count.inc()
        self._account(place)
        return place

    def _take(self, parked: SuspendedSubscription, item: Notification | SubscribeFailed) -> None:
        if isinstance(item, SubscribeFailed):
            self._end(parked)
        else:
            parked.add(item)
            self._account(self._places[parked.spuid])

    def _account(self, place: _Place) -> None:
        """Charge for what the client has missed. Where that is too much the subscription ends."""
        try:
            place.charge.set(place.parked.size)
        except TooManyRequests:
            self._end(place.parked)

    def _leave(self, place: _Place) -> None:
        del self._places[place.parked.spuid]
        place.parked.feed.to = _nothing
        place.timer.cancel()
        place.charge.release()
        place.count.dec()
        if place.tenure is not None:
            place.tenure.end()

    def _end(self, parked: SuspendedSubscription) -> None:
        self._leave(self._places[parked.spuid])
        with contextlib.suppress(EdgeError):  # a stopping engine ends all of them
            self._engine.unsubscribe(parked.spuid)


class _Place:
    """What ends a parked subscription."""

    __slots__ = ("charge", "count", "parked", "tenure", "timer")

    def __init__(self, parked: SuspendedSubscription, timer: asyncio.TimerHandle, charge: Charge, count: Gauge) -> None:
        self.parked = parked
        self.timer = timer
        self.charge = charge
        self.count = count
        self.tenure: AuthorizationWatch | None = None


def parked_of(call: Subscribe, unread: Sequence[Notification]) -> SuspendedSubscription:
    """A subscription that has a connection, as it is without one."""
    return SuspendedSubscription(call.feed, call.query, call.spuid, call.variables, call.sequence, unread)


def _same(one: QueryRequest, other: QueryRequest) -> bool:
    """Whether the same is asked by the same: not by a client that has the name of one that was revoked."""
    return one == other and one.access.registration == other.access.registration


def _nothing(_: object) -> None:
    pass
