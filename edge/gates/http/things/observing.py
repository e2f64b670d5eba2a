"""Observation of properties over HTTP: a stream of Server-Sent Events with the values of one property.

The format is that of the HTML standard, section 9.2 (https://html.spec.whatwg.org/#server-sent-events). In Thing
Descriptions, it is the subprotocol `sse` (TD 1.1, section 5.3.4.2).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

import pyoxigraph as ox
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from edge.engine.requests import ActiveSubscription, QueryRequest, SubscribeFailed, SubscriberNotification
from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.engine_interface import SubscribingEngine
from edge.gates.guard import Guard
from edge.gates.http.boundary import ANSWERED_AT, PRIMITIVE
from edge.gates.http.engine_future import result
from edge.gates.http.things.graph import value_query
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit
from edge.metrics import Metrics
from edge.observed_values import to_json
from edge.protocol.access import ANYBODY, Access
from edge.protocol.bag import Bag
from edge.protocol.errors import EdgeError, TooManyRequests
from edge.protocol.results import Row

MEDIA_TYPE: Final = "text/event-stream"

_ALIVE: Final = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection (section 9.2.7)."""
_RETRY: Final = b"retry: 5000\n\n"
"""Milliseconds after which a client connects again when a stream ends."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second one prevents that nginx holds events back."""


class PropertyObservers:
    """The event streams of one gate. All methods are called on the event loop."""

    def __init__(
        self, engine: SubscribingEngine, guard: Guard, rate_limit: RateLimit, metrics: Metrics, most: int
    ) -> None:
        """`most`: streams that may be open. Each one takes a connection, and others must get one, too."""
        self._engine = engine
        self._guard = guard
        self._rate_limit = rate_limit
        self._active = metrics.subscriptions.labels("http")
        self._most = most
        self._bridge: LoopDispatcher | None = None
        self._open: set[_Observer] = set()

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
        self._rate_limit.subscribe(who)
        observer = _Observer(partial(self._ended, who))
        self._open.add(observer)
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
            self._active.dec()
            self._rate_limit.unsubscribe(who)
            self._unsubscribe(observer.spuid)

    def _unsubscribe(self, spuid: str) -> None:
        if spuid:
            with contextlib.suppress(EdgeError):  # a stopping engine ends all subscriptions itself
                self._engine.unsubscribe(spuid)


class _Observer:
    """One stream. A slow client gets the newest value only."""

    def __init__(self, closed: Callable[[_Observer], None]) -> None:
        self.spuid = ""
        self.watch: AuthorizationWatch | None = None
        self._closed = closed
        self._rows: Bag[Row] = Bag()
        self._is_new = False
        """Whether a value has come since the last event."""
        self._is_over = False
        self._wake = asyncio.Event()

    def take(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Process an item that the engine sends, in order."""
        if isinstance(item, SubscribeFailed):
            self.spuid = ""
            self.end()
            return
        for rows, sign in ((item.delta.removed, -1), (item.delta.added, 1)):
            for row in rows:
                self._rows.add(row, sign)
        # An event that repeats the value before it removes that value first, so it counts, too.
        if item.delta.added:
            self._is_new = True
            self._wake.set()

    def end(self, _: EdgeError | None = None) -> None:
        """End the stream. The client connects again, and learns the reason from the response."""
        self._is_over = True
        self._wake.set()

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the stream."""
        yield _RETRY
        while not self._is_over:
            if (event := self._next()) is not None:
                yield event
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

    def _next(self) -> bytes | None:
        if not self._is_new:
            return None
        self._is_new = False
        values = sorted((value for (value,) in self._rows if isinstance(value, ox.Literal)), key=str)
        return f"data: {to_json(values[0])}\n\n".encode() if values else None


class _EventStream(StreamingResponse):
    """The response with a stream. The subscription ends with it, also if the client is gone before the first event."""

    def __init__(self, observer: _Observer) -> None:
        super().__init__(observer.events(), headers=_HEADERS, media_type=MEDIA_TYPE)
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until the client or the gate ends it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._observer.close()
