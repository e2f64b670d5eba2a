"""Resume registry: subscriptions that survive a lost connection, so that their clients can resume them.

Only subscriptions that asked for it are kept (`Subscribe.resumable`). All gates share one registry. It also holds the
subscriptions that were served before the last restart of the gateway. All methods are called on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Final, Protocol

from prometheus_client import Gauge

from edge.engine.admission.byte_quota import ByteQuota, Charge
from edge.engine.requests import QueryRequest, Sink, SubscribeFailed, SubscriberNotification
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.engine_interface import SessionEngine
from edge.gates.guard import Guard
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.suspended_subscription import SuspendedSubscription, SwitchableSink
from edge.protocol.access import ANYBODY
from edge.protocol.errors import EdgeError, TooManyRequests

_RESTART: Final = "restart"
"""Value of the gate label for subscriptions that were served before the last restart."""


class ConnectedSubscription(Protocol):
    """A resumable subscription with a connection."""

    @property
    def query(self) -> QueryRequest:
        """Its query and client."""

    def state(self) -> SuspendedSubscription | None:
        """Return the form in which it would be suspended. None: it is ending."""

    def hand_over(self, state: SuspendedSubscription, *, elsewhere: bool) -> None:
        """Suspend it, because it is resumed: this connection is probably lost. `elsewhere`: on another connection."""


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
        self._connected: dict[str, ConnectedSubscription] = {}
        self._slots: dict[str, _Slot] = {}
        """Suspended subscriptions, the oldest first."""

    @property
    def open(self) -> bool:
        """Whether subscriptions are kept at all."""
        return self._seconds > 0 and self._limit > 0 and not self._closed

    async def restore(self) -> None:
        """Take over the subscriptions of the previous run. They are suspended until their clients resume them."""
        bridge = LoopDispatcher(asyncio.get_running_loop())
        early: list[SubscriberNotification | SubscribeFailed] = []
        sinks: dict[str, SwitchableSink] = {}

        def sink(spuid: str) -> Sink:
            sinks[spuid] = SwitchableSink(early.append)
            return partial(bridge.put, sinks[spuid].take)

        for one in await asyncio.wrap_future(self._engine.take_over(sink)):
            self._keep(
                SuspendedSubscription(
                    sinks[one.spuid], one.request, one.spuid, one.variables, one.last_sequence, one.unread
                ),
                _RESTART,
            )
        # Notifications that came before the registry held their subscriptions.
        for item in early:
            sinks[item.spuid].take(item)

    def connected(self, spuid: str, holder: ConnectedSubscription) -> None:
        """Register a resumable subscription with a connection."""
        self._connected[spuid] = holder

    def disconnected(self, spuid: str) -> None:
        """Remove a subscription from those with a connection."""
        self._connected.pop(spuid, None)

    def detach(self, spuid: str, query: QueryRequest, sequence: int, *, elsewhere: bool) -> None:
        """Suspend a subscription whose connection still seems alive, for a client that resumes it after `sequence`.

        Ignored if the query differs. Also ignored if it cannot be resumed from this sequence number: then its
        connection may well be alive. `elsewhere`: the client resumes it on another connection.
        """
        holder = self._connected.get(spuid) if self.open else None
        state = holder.state() if holder is not None and _same(holder.query, query) else None
        if holder is not None and state is not None and state.since(None, sequence) is not None:
            holder.hand_over(state, elsewhere=elsewhere)

    def suspend(self, subscription: SuspendedSubscription, gate: str, authorization: str | None) -> None:
        """Hold a subscription whose connection is lost. Ignored during shutdown: the engine keeps it for the next
        start.

        `authorization`: the token of its client, whose permissions are watched further.
        """
        if not self.open:
            return
        slot, access = self._keep(subscription, gate), subscription.query.access
        if subscription.spuid in self._slots and access is not ANYBODY:
            slot.authorization_watch = AuthorizationWatch(
                self._guard, access, authorization, lambda _: self._end(subscription)
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
        # The oldest one makes room. Its client gets the full result if it comes back.
        if len(self._slots) >= self._limit:
            self._end(next(iter(self._slots.values())).subscription)
        subscription.sink.to = partial(self._take, subscription)
        charge = self._quota.charge(subscription.query.source)
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, subscription)
        slot = self._slots[subscription.spuid] = _Slot(subscription, timer, charge, self._count.labels(gate))
        slot.count.inc()
        self._account(slot)
        return slot

    def _take(self, subscription: SuspendedSubscription, item: SubscriberNotification | SubscribeFailed) -> None:
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
        slot.subscription.sink.to = _nothing
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


def _same(one: QueryRequest, other: QueryRequest) -> bool:
    """Whether query and client are the same. A client registered under the name of a revoked one is another client."""
    return one == other and one.access.registration == other.access.registration


def _nothing(_: object) -> None:
    pass
