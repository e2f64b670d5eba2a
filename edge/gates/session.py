"""One client's session: its messages in, its subscriptions, its answers and notifications out. Knows no transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from concurrent.futures import Future
from functools import partial

from edge.engine.requests import Dataset, Notification, QueryRequest, SubscribeFailed, Subscription
from edge.gates.bridge import Bridge
from edge.gates.engine import SubscriptionEngine
from edge.gates.outgoing import Connection, Outgoing
from edge.metrics import Metrics
from edge.protocol.errors import (
    EdgeError,
    InvalidRequest,
    NotFound,
    RequestTimeout,
    SubscriptionFailed,
    TooLarge,
    TooManyRequests,
)
from edge.protocol.messages import SubscribeRequest, UnsubscribeRequest, parse_request, unsubscribed_message

logger = logging.getLogger(__name__)


class Sessions:
    """What all sessions of a gate share: the engine, the bridge from its thread, limits and metrics."""

    def __init__(
        self,
        engine: SubscriptionEngine,
        bridge: Bridge,
        metrics: Metrics,
        *,
        gate: str,
        max_message: int,
        max_subscriptions: int,
        max_pending_requests: int,
        max_pending_notifications: int,
    ) -> None:
        self.engine = engine
        self.bridge = bridge
        self.metrics = metrics
        self.gate = gate
        self.max_message = max_message
        self.max_subscriptions = max_subscriptions
        self.max_pending_requests = max_pending_requests
        self.max_pending_notifications = max_pending_notifications
        self.notifications = metrics.notifications.labels(gate)
        self.active = metrics.subscriptions.labels(gate)

    def answered(self, primitive: str, status: int, started: float) -> None:
        """Count an answer to a request that came in at `started` (`time.perf_counter`, seconds)."""
        self.metrics.answered(self.gate, primitive, status, time.perf_counter() - started)


class Session:
    """A client's session. All methods are called on the event loop; none waits for the engine but `room`.

    Requests are handed to the engine as they come, so that many that are sent in one go are not answered one round trip
    at a time. The engine's answers and notifications come over one bridge, so the client sees them in engine order.
    """

    def __init__(self, shared: Sessions, connection: Connection) -> None:
        self.shared = shared
        self.outgoing = Outgoing(connection, shared.max_pending_notifications, self._overflow)
        self.subscriptions: dict[str, _Subscribe] = {}
        self.closed = False
        self._opening: set[_Subscribe] = set()
        self._pending = 0
        self._room = asyncio.Event()
        self._room.set()

    def receive(self, message: str | bytes) -> None:
        """Take one message from the client. Everything that can be wrong with it is answered with an error."""
        started = time.perf_counter()
        primitive = "message"
        try:
            if isinstance(message, bytes):
                raise InvalidRequest("Binary messages are not understood: send JSON as text")
            if _size(message) > self.shared.max_message:
                raise TooLarge(f"The message is longer than {self.shared.max_message} bytes; send a shorter one")
            request = parse_request(message)
            primitive = "subscribe" if isinstance(request, SubscribeRequest) else "unsubscribe"
            if isinstance(request, SubscribeRequest):
                self._subscribe(request, started)
            else:
                self._unsubscribe(request, started)
        except EdgeError as error:
            self.refuse(error, primitive, started)

    async def room(self) -> None:
        """Wait until the session may take another message: not while too many requests of it are in work."""
        await self._room.wait()

    def close(self) -> None:
        """The client is gone: end all its subscriptions, also those that are about to begin."""
        if self.closed:
            return
        self.closed = True
        self.outgoing.close()
        for call in self._opening:
            call.drop()
        for spuid in list(self.subscriptions):
            self.forget(spuid)
            self.end(spuid)

    def refuse(self, error: EdgeError, primitive: str, started: float) -> None:
        """Send an error, and count it."""
        self.outgoing.send(error.to_json())
        self.shared.answered(primitive, error.status_code, started)

    def begun(self) -> None:
        """Count a request that the engine has taken."""
        self._pending += 1
        if self._pending >= self.shared.max_pending_requests:
            self._room.clear()

    def done(self) -> None:
        """Count a request that the engine has answered."""
        self._pending -= 1
        if self._pending < self.shared.max_pending_requests:
            self._room.set()

    def keep(self, spuid: str, call: _Subscribe) -> None:
        """A subscription has begun."""
        self._opening.discard(call)
        self.subscriptions[spuid] = call
        self.shared.active.inc()

    def forget(self, spuid: str) -> _Subscribe | None:
        """A subscription is over, as far as the client is concerned."""
        call = self.subscriptions.pop(spuid, None)
        if call is not None:
            self.shared.active.dec()
        return call

    def end(self, spuid: str) -> None:
        """Have the engine end a subscription that no client asks about any more."""
        with contextlib.suppress(EdgeError):  # nobody is left to tell, and a stopping engine ends all of them
            self.shared.engine.unsubscribe(spuid)

    def opened(self, call: _Subscribe) -> None:
        """A subscribe request has been answered, one way or the other."""
        self._opening.discard(call)

    def _subscribe(self, request: SubscribeRequest, started: float) -> None:
        limit = self.shared.max_subscriptions
        if len(self.subscriptions) + len(self._opening) >= limit:
            raise TooManyRequests(
                f"This connection has {limit} subscriptions, which is the most it may have; unsubscribe some or open "
                "another connection",
                alias=request.alias,
            )
        call = _Subscribe(self, request, started)
        self._opening.add(call)
        try:
            call.start()
        except EdgeError:
            self._opening.discard(call)
            raise

    def _unsubscribe(self, request: UnsubscribeRequest, started: float) -> None:
        call = self.subscriptions.get(request.spuid)
        if call is None or call.ending:
            raise NotFound(
                f'This connection has no subscription "{request.spuid}"; give the spuid of its notifications, on the '
                "connection on which it was subscribed",
                alias=request.alias,
                spuid=request.spuid,
            )
        _Unsubscribe(self, call, request, started).start()

    def _overflow(self) -> None:
        self.shared.metrics.slow_clients.labels(self.shared.gate).inc()
        self.close()


class _Subscribe:
    """One subscribe request, and the subscription that comes of it."""

    def __init__(self, session: Session, request: SubscribeRequest, started: float) -> None:
        self.session = session
        self.request = request
        self.alias = request.alias
        self.started = started
        self.ending = False
        self._dropped = False
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._future: Future[Subscription] | None = None

    def start(self) -> None:
        request, shared = self.request, self.session.shared
        query = QueryRequest(
            request.sparql, Dataset(_as_tuple(request.default_graph_uri), _as_tuple(request.named_graph_uri))
        )
        sink = partial(shared.bridge.put, self.notify)
        try:
            self._future = shared.engine.subscribe(query, sink, alias=request.alias)
        except EdgeError as error:
            raise error.with_alias(request.alias) from error
        self.session.begun()
        if request.timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(request.timeout / 1000, self._expire)
        self._future.add_done_callback(partial(shared.bridge.put, self._done))

    def notify(self, item: Notification | SubscribeFailed) -> None:
        """What the engine sends to this subscription, in order."""
        if self._dropped:
            return
        session = self.session
        if isinstance(item, SubscribeFailed):
            self._dropped = True
            error = SubscriptionFailed(item.description, alias=item.alias, spuid=item.spuid)
            session.refuse(error, "notify", time.perf_counter())
            if session.forget(item.spuid) is not None:
                session.end(item.spuid)
            return
        if not self._answered:
            self._answer()
            session.keep(item.spuid, self)
            session.shared.answered("subscribe", 200, self.started)
        session.outgoing.send(item)
        session.shared.notifications.inc()

    def drop(self) -> None:
        """Send nothing more; if the subscription comes about all the same, it is ended at once."""
        self._dropped = True
        self._answer()

    def _answer(self) -> None:
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.drop()
        self.session.opened(self)
        error = RequestTimeout(
            f"No answer within the {self.request.timeout:g} ms of the request's timeout; nothing was subscribed",
            alias=self.alias,
        )
        self.session.refuse(error, "subscribe", self.started)
        if self._future is not None:
            self._future.cancel()

    def _done(self, future: Future[Subscription]) -> None:
        session = self.session
        session.done()
        session.opened(self)
        failure = None if future.cancelled() else future.exception()
        if self._dropped:
            if not future.cancelled() and failure is None:
                session.end(future.result().spuid)
        elif failure is not None:
            self.drop()
            session.refuse(_as_told(failure, self.alias, session.shared.metrics), "subscribe", self.started)


class _Unsubscribe:
    """One unsubscribe request. The subscription's notifications go on until the engine has answered."""

    def __init__(self, session: Session, call: _Subscribe, request: UnsubscribeRequest, started: float) -> None:
        self.session = session
        self.call = call
        self.request = request
        self.alias = call.alias if request.alias is None else request.alias
        self.started = started

    def start(self) -> None:
        shared = self.session.shared
        try:
            future = shared.engine.unsubscribe(self.request.spuid)
        except EdgeError as error:
            raise error.with_alias(self.alias) from error
        self.call.ending = True
        self.session.begun()
        future.add_done_callback(partial(shared.bridge.put, self._done))

    def _done(self, future: Future[None]) -> None:
        session = self.session
        session.done()
        self.call.drop()
        session.forget(self.request.spuid)
        failure = future.exception()
        if failure is not None:
            session.refuse(_as_told(failure, self.alias, session.shared.metrics), "unsubscribe", self.started)
        else:
            session.outgoing.send(unsubscribed_message(self.request.spuid, self.alias))
            session.shared.answered("unsubscribe", 200, self.started)


def _as_tuple(graphs: list[str] | None) -> tuple[str, ...] | None:
    return None if graphs is None else tuple(graphs)


def _size(text: str) -> int:
    """Bytes of the text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _as_told(failure: BaseException, alias: str | None, metrics: Metrics) -> EdgeError:
    """What went wrong, as the client is told. What no error of the tree describes is a fault of ours, and logged."""
    if isinstance(failure, EdgeError):
        return failure.with_alias(alias)
    incident = uuid.uuid4().hex[:12]
    metrics.internal_errors.inc()
    logger.error("internal error %s", incident, exc_info=failure)
    return EdgeError(f"Internal error {incident}: the gateway's log tells more", alias=alias)
