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
"""Value of the gate label for subscriptions that were served before the last restart."""


class Feed:
    """Sink of one subscription, whose receiver can change: a client, a later client, or none."""

    __slots__ = ("to",)

    def __init__(self, to: Sink) -> None:
        self.to = to

    def take(self, item: Notification | SubscribeFailed) -> None:
        """Forward an item to the current receiver."""
        self.to(item)


class SuspendedSubscription:
    """A subscription without a connection: its possibly unreceived notifications, and a merged delta of later ones."""

    def __init__(
        self,
        feed: Feed,
        query: QueryRequest,
        spuid: str,
        variables: tuple[str, ...],
        told: int,
        unread: Sequence[Notification],
    ) -> None:
        """`told`: number of the last sent notification. `unread`: the last notifications, sent or waiting, in order."""
        self.feed = feed
        self.query = query
        self.spuid = spuid
        self.variables = variables
        self.sequence = max(told, unread[-1].sequence) if unread else told
        """Number of the last notification."""
        self._told = told
        self._unread = unread
        self._unread_size = sum([size_of(missed.delta) for missed in unread])
        self._merged: MergedDelta | None = None

    @property
    def size(self) -> int:
        """Approximate memory of the changes that the client may have missed, in bytes."""
        return self._unread_size + (0 if self._merged is None else self._merged.size)

    def add(self, notification: Notification) -> None:
        """Merge a new notification."""
        self.sequence = notification.sequence
        if self._merged is None:
            self._merged = MergedDelta(notification)
        else:
            self._merged.add(notification)

    def since(self, alias: str | None, sequence: int) -> Notification | None:
        """Return one notification with all changes after `sequence`. None: these changes are not available any more."""
        if sequence > self._told:
            return None
        merged = MergedDelta(Notification(self.spuid, alias, sequence, Delta(self.variables, (), ()), merged=0))
        for missed in self._unread if self._merged is None else (*self._unread, self._merged.notification()):
            if missed.sequence > merged.sequence:
                if missed.sequence - missed.merged != merged.sequence:
                    return None
                merged.add(missed)
        return merged.notification() if merged.sequence == self.sequence else None


class ResumeRegistry:
    """Registry of resumable subscriptions by spuid, including those with a connection.

    A client often reconnects before the gateway has detected the loss of its connection. It may therefore take its
    subscription from a connection that seems alive.
    """

    def __init__(
        self,
        engine: SessionEngine,
        guard: Guard,
        gauge: Gauge,
        *,
        seconds: float = 0.0,
        limit: int = 0,
        max_sent: int = 256 * 1024,
        quota: ByteQuota | None = None,
    ) -> None:
        """Keep up to `limit` subscriptions for `seconds` after the loss of the connection; 0: none.

        `gauge`: number of suspended subscriptions by gate. `max_sent`: characters of the last sent notifications that
        are kept for each connection, because they may be lost with it; about the size of the kernel buffers on both
        ends. `quota` is charged for missed changes.
        """
        self._quota = quota or ByteQuota()
        self.max_sent = max_sent
        self._engine = engine
        self._guard = guard
        self._count = gauge
        self._seconds = seconds
        self._limit = limit
        self._closed = False
        self._living: dict[str, Subscribe] = {}
        self._slots: dict[str, _Slot] = {}
        """Suspended subscriptions, the oldest first."""

    @property
    def open(self) -> bool:
        """Whether subscriptions are kept at all."""
        return self._seconds > 0 and self._limit > 0 and not self._closed

    async def restore(self) -> None:
        """Take over the subscriptions of the previous run. They are suspended until their clients resume them."""
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
        """Return a resumable subscription that has a connection. None: it does not exist, or the query differs."""
        call = self._living.get(spuid) if self.open else None
        return call if call is not None and not call.ending and _same(call.query, query) else None

    def note(self, call: Subscribe) -> None:
        """Register a resumable subscription with a connection."""
        self._living[call.spuid] = call

    def forget(self, call: Subscribe) -> None:
        """Remove a subscription from those with a connection."""
        self._living.pop(call.spuid, None)

    def park(self, call: Subscribe, unread: Sequence[Notification]) -> None:
        """Suspend a subscription whose connection is lost. Ignored during shutdown: the engine keeps it for the next
        start.
        """
        if not self.open:
            return
        subscription = suspended(call, unread)
        slot = self._keep(subscription, call.session.shared.gate)
        if subscription.spuid in self._slots and call.access is not ANYBODY:
            slot.authorization_watch = AuthorizationWatch(
                self._guard, call.access, call.request.authorization, lambda _: self._end(subscription)
            )

    def claim(self, spuid: str, query: QueryRequest) -> SuspendedSubscription | None:
        """Remove a suspended subscription to resume it. None: it does not exist, or the query differs."""
        slot = self._slots.get(spuid)
        if slot is None or not _same(slot.subscription.query, query):
            return None
        self._leave(slot)
        return slot.subscription

    def close(self) -> None:
        """Stop: suspend no more. The suspended subscriptions continue after the next start."""
        self._closed = True
        for slot in list(self._slots.values()):
            self._leave(slot)

    def _keep(self, subscription: SuspendedSubscription, gate: str) -> _Slot:
        if len(self._slots) >= self._limit:
            self._end(next(iter(self._slots.values())).subscription)
        subscription.feed.to = partial(self._take, subscription)
        charge = self._quota.charge(subscription.query.source)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, subscription)
        slot = self._slots[subscription.spuid] = _Slot(subscription, timer, charge, self._count.labels(gate))
        slot.count.inc()
        self._account(slot)
        return slot

    def _take(self, subscription: SuspendedSubscription, item: Notification | SubscribeFailed) -> None:
        if isinstance(item, SubscribeFailed):
            self._end(subscription)
        else:
            subscription.add(item)
            self._account(self._slots[subscription.spuid])

    def _account(self, slot: _Slot) -> None:
        """Charge the client for the missed changes. If its quota is exhausted, end the subscription."""
        try:
            slot.charge.set(slot.subscription.size)
        except TooManyRequests:
            self._end(slot.subscription)

    def _leave(self, slot: _Slot) -> None:
        del self._slots[slot.subscription.spuid]
        slot.subscription.feed.to = _nothing
        slot.timer.cancel()
        slot.charge.release()
        slot.count.dec()
        if slot.authorization_watch is not None:
            slot.authorization_watch.end()

    def _end(self, subscription: SuspendedSubscription) -> None:
        self._leave(self._slots[subscription.spuid])
        with contextlib.suppress(EdgeError):  # a stopping engine ends all subscriptions itself
            self._engine.unsubscribe(subscription.spuid)


class _Slot:
    """Resources that belong to a suspended subscription."""

    __slots__ = ("authorization_watch", "charge", "count", "subscription", "timer")

    def __init__(
        self, subscription: SuspendedSubscription, timer: asyncio.TimerHandle, charge: Charge, count: Gauge
    ) -> None:
        self.subscription = subscription
        self.timer = timer
        self.charge = charge
        self.count = count
        self.authorization_watch: AuthorizationWatch | None = None


def suspended(call: Subscribe, unread: Sequence[Notification]) -> SuspendedSubscription:
    """Return the suspended form of a subscription that has a connection."""
    return SuspendedSubscription(call.feed, call.query, call.spuid, call.variables, call.sequence, unread)


def _same(one: QueryRequest, other: QueryRequest) -> bool:
    """Whether query and client are the same. A client registered under the name of a revoked one is another client."""
    return one == other and one.access.registration == other.access.registration


def _nothing(_: object) -> None:
    pass
