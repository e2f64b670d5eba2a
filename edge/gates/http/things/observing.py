"""Observation of properties over HTTP: a stream of Server-Sent Events with the values of one property.

The format is that of the HTML standard, section 9.2 (https://html.spec.whatwg.org/#server-sent-events). In Thing
Descriptions, it is the subprotocol `sse` (TD 1.1, section 5.3.4.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

import pyoxigraph as ox
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from edge.engine.requests import ActiveSubscription, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.engine_interface import SubscribingEngine
from edge.gates.guard import Guard
from edge.gates.http.boundary import ABORT, ANSWERED_AT, PRIMITIVE
from edge.gates.http.engine_future import result
from edge.gates.http.things.graph import value_query
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit
from edge.metrics import Metrics
from edge.observed_values import to_json
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, TooManyRequests

MEDIA_TYPE: Final = "text/event-stream"

_ALIVE: Final = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection (section 9.2.7)."""
_STALLED: Final = 30.0
"""Seconds after which a stream ends whose client does not read: it has full buffers, and takes a connection."""
_LAST: Final = 0.5
"""Seconds for the last data of a stream that the gate ends."""
_QUEUED: Final = 100
"""Values that wait for a client. A client that reads slower loses the oldest ones."""
_QUEUED_CHARACTERS: Final = 64 * 1024
"""Characters of these values."""
_RETRY: Final = b"retry: 5000\n\n"
"""Milliseconds after which a client connects again when a stream ends."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second one prevents that nginx holds events back."""


class PropertyObservers:
    """The event streams of one gate. All methods are called on the event loop."""

    def __init__(
        self, engine: SubscribingEngine, guard: Guard, rate_limit: RateLimit, metrics: Metrics, most: int
    ) -> None:
        """`most`: streams that may be open, a quarter of them by one client.

        Each one takes a connection, and others must get one, too.
        """
        self._engine = engine
        self._guard = guard
        self._rate_limit = rate_limit
        self._active = metrics.subscriptions.labels("http")
        self._most = most
        self._most_of_one = max(most // 4, 1)
        self._bridge: LoopDispatcher | None = None
        self._open: set[_Observer] = set()
        self._open_of: Counter[str] = Counter()

    async def serve(self, request: Request, iri: str, access: Access, who: str) -> Response:
        """Return a stream with the values of an observation, the present one first. Raises `EdgeError`.

        `who`: the client for the rate limits.
        """
        request.scope[PRIMITIVE] = "subscribe"
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=MEDIA_TYPE)
        if len(self._open) >= self._most:
            raise TooManyRequests(
                f"Clients observe {self._most} properties, which is half of http.max_connections and the most that are "
                "possible; subscribe over a WebSocket, or try again later"
            )
        if self._open_of[who] >= self._most_of_one:
            raise TooManyRequests(
                f"This client observes {self._most_of_one} properties, which is an eighth of http.max_connections and "
                "the most that one client may; subscribe over a WebSocket"
            )
        self._rate_limit.subscribe(who)
        observer = _Observer(partial(self._ended, who), request.scope[ABORT])
        self._open.add(observer)
        self._open_of[who] += 1
        self._active.inc()
        try:
            observer.spuid = await self._subscribed(QueryRequest(value_query(iri), access=access, source=who), observer)
        except BaseException:
            observer.close()
            raise
        if access is not ANYBODY:
            observer.watch = AuthorizationWatch(self._guard, access, request.headers.get("authorization"), observer.end)
        request.scope[ANSWERED_AT] = time.perf_counter()
        return _EventStream(observer)

    def close(self) -> None:
        """End all streams: the gate stops."""
        for observer in list(self._open):
            observer.end()

    async def _subscribed(self, query: QueryRequest, observer: _Observer) -> str:
        """Subscribe, and return the identifier of the subscription. Raises `EdgeError`."""
        if self._bridge is None:
            self._bridge = LoopDispatcher(asyncio.get_running_loop())
        future = self._engine.subscribe(query, partial(self._bridge.put, observer.take))
        try:
            return (await result(future, shield=True)).spuid
        except asyncio.CancelledError:  # the client is gone
            future.add_done_callback(self._give_up)
            raise

    def _give_up(self, future: Future[ActiveSubscription]) -> None:
        """End a subscription that has begun after its client was gone."""
        if not future.cancelled() and future.exception() is None:
            self._unsubscribe(future.result().spuid)

    def _ended(self, who: str, observer: _Observer) -> None:
        if observer in self._open:
            self._open.discard(observer)
            self._open_of[who] -= 1
            if not self._open_of[who]:
                del self._open_of[who]
            self._active.dec()
            self._rate_limit.unsubscribe(who)
            self._unsubscribe(observer.spuid)

    def _unsubscribe(self, spuid: str) -> None:
        if spuid:
            with contextlib.suppress(EdgeError):  # a stopping engine ends all subscriptions itself
                self._engine.unsubscribe(spuid)


class _Observer:
    """One stream, with the values that wait for its client."""

    def __init__(self, closed: Callable[[_Observer], None], abort: Callable[[], None]) -> None:
        """`abort` closes the connection without sending the data that wait for the client."""
        self.spuid = ""
        self.watch: AuthorizationWatch | None = None
        self._closed = closed
        self._abort = abort
        self._values: deque[ox.Literal] = deque()
        self._characters = 0
        self._is_over = False
        self._wake = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        """Aborts the connection if the data that are being sent wait too long."""

    def take(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Process an item that the engine sends, in order."""
        if isinstance(item, SubscribeFailed):
            self.spuid = ""
            self.end()
            return
        # Of several that an update adds, the order is unknown; any order is right if it is always the same.
        values = sorted((value for (value,) in item.delta.added if isinstance(value, ox.Literal)), key=str)
        for value in values[:1] if item.sequence == 0 else values:
            self._put(value)

    def _put(self, value: ox.Literal) -> None:
        self._values.append(value)
        self._characters += len(value.value)
        while len(self._values) > _QUEUED or (self._characters > _QUEUED_CHARACTERS and len(self._values) > 1):
            self._next()
        self._wake.set()

    def _next(self) -> ox.Literal:
        value = self._values.popleft()
        self._characters -= len(value.value)
        return value

    def end(self, _: EdgeError | None = None) -> None:
        """End the stream. The client connects again, and learns the reason from the response."""
        self._is_over = True
        self._wake.set()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = self._begin_patience()

    async def send(self, send: Send, message: Message) -> None:
        """Send data, and abort the connection if the client does not read for too long."""
        self._patience = self._begin_patience()
        try:
            await send(message)
        finally:
            self._patience.cancel()
            self._patience = None

    def _begin_patience(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(_LAST if self._is_over else _STALLED, self._abort)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the stream."""
        yield _RETRY
        while not self._is_over:
            if self._values:
                yield f"data: {to_json(self._next())}\n\n".encode()
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(_ALIVE):
                    await self._wake.wait()
            except TimeoutError:
                yield b":\n\n"

    def close(self) -> None:
        """End the subscription."""
        if self.watch is not None:
            self.watch.end()
            self.watch = None
        self._closed(self)


class _EventStream(StreamingResponse):
    """The response with a stream. The subscription ends with it, also if the client is gone before the first event."""

    def __init__(self, observer: _Observer) -> None:
        super().__init__(observer.events(), headers=_HEADERS, media_type=MEDIA_TYPE)
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until the client or the gate ends it."""
        try:
            await super().__call__(scope, receive, partial(self._observer.send, send))
        finally:
            self._observer.close()
