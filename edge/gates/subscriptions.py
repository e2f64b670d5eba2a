"""Subscriptions of one session: started, resumed, ended, and handed over to the resume registry.

All methods are called on the event loop. Answers arrive through the dispatcher, in engine order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from edge.engine.requests import ActiveSubscription, Dataset, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.rate_limit import client_of
from edge.gates.responses import Responses
from edge.gates.suspended_subscription import SuspendedSubscription, SwitchableSink
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, NotFound, RequestTimeout, SubscriptionFailed, TooManyRequests
from edge.protocol.messages import SubscribeMessage, UnsubscribeMessage, unsubscribed_message


class SessionSubscriptions:
    """Subscriptions of one session, and those that are about to start."""

    def __init__(self, responses: Responses) -> None:
        self.responses = responses
        self._shared = responses.shared
        self._by_spuid: dict[str, Subscribe] = {}
        self._opening: set[Subscribe] = set()

    def subscribe(self, request: SubscribeMessage, access: Access, started: float) -> None:
        """Start or resume a subscription. Raises errors that are detected at once."""
        call = Subscribe(self, request, access, started)
        try:
            self._begin(call)
        except EdgeError:
            call.release()
            raise

    def _begin(self, call: Subscribe) -> None:
        request = call.request
        if request.spuid is not None:
            assert request.sequence is not None  # noqa: S101
            elsewhere = request.spuid not in self._by_spuid
            self._shared.resume_registry.detach(request.spuid, call.query, request.sequence, elsewhere=elsewhere)
        limit = self._shared.limits.max_subscriptions
        # Pending requests count, too: else a client could exceed the limit with requests sent at once.
        if len(self._by_spuid) + len(self._opening) >= limit:
            raise TooManyRequests(
                f"This connection has {limit} subscriptions, which is the most it may have "
                f"({self._shared.section}.max_subscriptions); unsubscribe some or {self._shared.another}",
                alias=request.alias,
            )
        try:
            # From here until `forget` or `opened`, the subscription counts for its client.
            self._shared.rate_limit.subscribe(call.who)
        except TooManyRequests as error:
            raise error.with_alias(request.alias) from None
        self._opening.add(call)
        if request.spuid is not None and self._resume(call):
            return
        try:
            call.start()
        except EdgeError:
            self.opened(call)
            raise

    def _resume(self, again: Subscribe) -> bool:
        """Resume a suspended subscription. False: it has ended, its query differs, or changes since then are not
        available.
        """
        request, resume_registry = again.request, self._shared.resume_registry
        assert request.spuid is not None  # noqa: S101
        assert request.sequence is not None  # noqa: S101
        suspended = resume_registry.claim(request.spuid, again.query)
        if suspended is None:
            return False
        missed = suspended.since(again.alias, request.sequence)
        if missed is None:
            self.end(suspended.spuid)
            return False
        again.go_on(suspended, missed)
        return True

    def unsubscribe(self, request: UnsubscribeMessage, access: Access, started: float) -> None:
        """End a subscription. Raises `NotFound`."""
        call = self._by_spuid.get(request.spuid)
        # One answer for all three cases: a client must not learn about subscriptions of others.
        if call is None or call.ending or call.access.client != access.client:
            raise NotFound(
                f'This connection has no subscription "{request.spuid}"; give the spuid of its notifications, on the '
                "connection on which it was subscribed",
                alias=request.alias,
                spuid=request.spuid,
            )
        Unsubscribe(self, call, request, started).start()

    def keep(self, spuid: str, call: Subscribe) -> None:
        """Register a subscription that has started or was resumed."""
        self._opening.discard(call)
        self._by_spuid[spuid] = call
        call.watch()
        self._shared.active.inc()
        if call.resumable:
            self.responses.outgoing.remember(spuid)
            self._shared.resume_registry.connected(spuid, call)

    def opened(self, call: Subscribe) -> None:
        """Count a subscribe request that was answered."""
        if call in self._opening:
            self._opening.discard(call)
            self._shared.rate_limit.unsubscribe(call.who)

    def forget(self, spuid: str) -> Subscribe | None:
        """Remove a subscription that has ended for the client."""
        # Popped first, so that a second call for the same spuid has no effect on the counters.
        call = self._by_spuid.pop(spuid, None)
        if call is not None:
            call.unwatch()
            self._shared.active.dec()
            self._shared.rate_limit.unsubscribe(call.who)
            if call.resumable:
                self.responses.outgoing.forget(spuid)
                self._shared.resume_registry.disconnected(spuid)
        return call

    def drop(self, spuid: str) -> None:
        """End a subscription without a message to its client."""
        call = self.forget(spuid)
        if call is not None:
            call.drop()
            self.end(spuid)

    def end(self, spuid: str) -> None:
        """End a subscription in the engine that has no client any more."""
        with contextlib.suppress(EdgeError):  # the client is gone, and a stopping engine ends all subscriptions itself
            self._shared.engine.unsubscribe(spuid)

    def close(self, unread: Mapping[str, Sequence[SubscriberNotification]] | None) -> None:
        """End all subscriptions.

        `unread`: the notifications, by spuid, that the client may not have received, if it may resume its
        subscriptions; None: it may not.
        """
        for call in self._opening:
            call.drop()
        # A copy, because `forget` changes the dictionary.
        for spuid, call in list(self._by_spuid.items()):
            self.forget(spuid)
            if unread is not None and call.resumable and not call.ending:
                call.suspend(call.suspended(unread.get(spuid, [])))
            else:
                call.release()
                self.end(spuid)


class Subscribe:
    """A subscribe request, and the resulting subscription."""

    def __init__(
        self, subscriptions: SessionSubscriptions, request: SubscribeMessage, access: Access, started: float
    ) -> None:
        self._subscriptions = subscriptions
        self._responses = subscriptions.responses
        self._shared = subscriptions.responses.shared
        self.request = request
        self.access = access
        self.alias = request.alias
        self.started = started
        self.who = client_of(access, self._responses.peer)
        dataset = Dataset.of(request.default_graph_uri, request.named_graph_uri)
        self.query = QueryRequest(request.sparql, dataset, access, self.who)
        self.resumable = self._shared.resume_registry.open and (request.resume or request.spuid is not None)
        """Whether the client may resume it on another connection."""
        self.spuid = ""
        self.variables: tuple[str, ...] = ()
        self.sequence = 0
        """Number of the last notification."""
        self.sink = SwitchableSink(self.notify)
        self.ending = False
        self._authorization_watch: AuthorizationWatch | None = None
        self._dropped = False
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._future: Future[ActiveSubscription] | None = None

    def start(self) -> None:
        """Pass the request to the engine. Raises errors that the engine detects at once."""
        request, shared = self.request, self._shared
        # The engine calls the sink on its writer thread; the dispatcher moves the item to the event loop, in order.
        sink = partial(shared.bridge.put, self.sink.take)
        try:
            self._future = shared.engine.subscribe(self.query, sink, alias=request.alias, keep=self.resumable)
        except EdgeError as error:
            raise error.with_alias(request.alias) from error
        self._responses.begun()
        if request.timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(request.timeout / 1000, self._expire)
        # Through the same dispatcher, so `_done` runs after the notifications that the engine sent before.
        self._future.add_done_callback(partial(shared.bridge.put, self._done))

    def notify(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Process an item that the engine sends to this subscription, in order."""
        if self._dropped:
            return
        self.spuid = item.spuid
        if isinstance(item, SubscribeFailed):
            self._lose(SubscriptionFailed(item.description))
            return
        # The first notification (sequence 0) is the response to the subscribe request.
        if not self._answered:
            self._answer()
            self.variables = item.delta.variables
            self._subscriptions.keep(item.spuid, self)
            self._shared.answered("subscribe", 200, self.started)
        self.sequence = item.sequence
        item.alias = self.alias
        self._responses.outgoing.send(item)
        self._shared.notified()

    def go_on(self, suspended: SuspendedSubscription, missed: SubscriberNotification) -> None:
        """Resume a suspended subscription instead of starting a new one."""
        self._answer()
        self.spuid, self.variables, self.sequence = suspended.spuid, suspended.variables, suspended.sequence
        self.sink = suspended.sink
        # The engine keeps the sink of the suspended subscription; only its receiver changes.
        self.sink.to = self.notify
        if suspended.query.source != self.who:  # without security, another connection is another client
            self._shared.engine.transfer(self.spuid, self.who)
        self._subscriptions.keep(self.spuid, self)
        self._responses.outgoing.send(missed)
        self._shared.notified()
        self._shared.answered("subscribe", 200, self.started)

    def watch(self) -> None:
        """End the subscription when the client's permissions end."""
        self.unwatch()
        if self.access is not ANYBODY:
            self._authorization_watch = AuthorizationWatch(
                self._shared.guard, self.access, self.request.authorization, self._lose
            )

    def unwatch(self) -> None:
        """Stop watching the permissions: the subscription has ended, or was suspended."""
        if self._authorization_watch is not None:
            self._authorization_watch.end()
            self._authorization_watch = None

    def drop(self) -> None:
        """Send nothing more; if the engine still starts the subscription, end it at once."""
        self._dropped = True
        self.release()
        self._answer()

    def state(self) -> SuspendedSubscription | None:
        """See `ConnectedSubscription`."""
        if self.ending:
            return None
        unread = self._responses.outgoing.unread().get(self.spuid, [])
        return self.suspended(unread)

    def suspended(self, unread: Sequence[SubscriberNotification]) -> SuspendedSubscription:
        """Return the suspended form of the subscription. `unread`: see `SuspendedSubscription`."""
        return SuspendedSubscription(self.sink, self.query, self.spuid, self.variables, self.sequence, unread)

    def hand_over(self, state: SuspendedSubscription, *, elsewhere: bool) -> None:
        """See `ConnectedSubscription`."""
        # `state` contains the waiting notifications already; sending them as well would repeat them.
        self._responses.outgoing.withdraw(self.spuid)
        self._subscriptions.forget(self.spuid)
        self.suspend(state)
        if elsewhere:
            reason = "The subscription goes on on another connection, which has resumed it"
            error = SubscriptionFailed(reason, alias=self.alias, spuid=self.spuid)
            self._responses.refuse(error, "notify", time.perf_counter())

    def suspend(self, state: SuspendedSubscription) -> None:
        """Have the registry hold the subscription until a client resumes it."""
        self._shared.resume_registry.suspend(state, self._shared.gate, self.request.authorization)

    def release(self) -> None:
        """Break the reference cycle: the query text would stay in memory until the garbage collector runs, which is
        rare.
        """
        self.sink.to = _ignore
        self._future = None if self._future is not None and self._future.done() else self._future

    def _lose(self, error: EdgeError) -> None:
        """End the subscription with an error."""
        self._dropped = True
        self.release()
        error = type(error)(error.description, alias=self.alias, spuid=self.spuid)
        self._responses.refuse(error, "notify", time.perf_counter())
        if self._subscriptions.forget(self.spuid) is not None:
            self._subscriptions.end(self.spuid)

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.drop()
        self._subscriptions.opened(self)
        error = RequestTimeout(
            f"No answer within the {self.request.timeout:g} ms of the request's timeout; nothing was subscribed",
            alias=self.alias,
        )
        self._responses.refuse(error, "subscribe", self.started)
        if self._future is not None:
            self._future.cancel()

    def _done(self, future: Future[ActiveSubscription]) -> None:
        self._responses.done()
        self._subscriptions.opened(self)
        self._future = None
        failure = None if future.cancelled() else future.exception()
        if self._dropped:
            # The engine has started a subscription that the client gave up meanwhile.
            if not future.cancelled() and failure is None:
                self._subscriptions.end(future.result().spuid)
        elif failure is not None:
            self.drop()
            self._responses.refuse(self._shared.as_error(failure, self.alias), "subscribe", self.started)


class Unsubscribe:
    """An unsubscribe request. Notifications continue until the engine has answered."""

    def __init__(
        self, subscriptions: SessionSubscriptions, call: Subscribe, request: UnsubscribeMessage, started: float
    ) -> None:
        self._subscriptions = subscriptions
        self._responses = subscriptions.responses
        self.call = call
        self.request = request
        self.alias = call.alias if request.alias is None else request.alias
        self.started = started

    def start(self) -> None:
        """Pass the request to the engine. Raises errors that the engine detects at once."""
        shared = self._responses.shared
        try:
            future = shared.engine.unsubscribe(self.request.spuid)
        except EdgeError as error:
            raise error.with_alias(self.alias) from error
        # A second unsubscribe is refused from now on, although notifications continue until `_done`.
        self.call.ending = True
        self._responses.begun()
        future.add_done_callback(partial(shared.bridge.put, self._done))

    def _done(self, future: Future[None]) -> None:
        responses = self._responses
        responses.done()
        self.call.drop()
        self._subscriptions.forget(self.request.spuid)
        failure = future.exception()
        if failure is not None:
            responses.refuse(responses.shared.as_error(failure, self.alias), "unsubscribe", self.started)
        else:
            responses.outgoing.send(unsubscribed_message(self.request.spuid, self.alias))
            responses.shared.answered("unsubscribe", 200, self.started)


def _ignore(_: object) -> None:
    pass
