"""Subscriptions as observable resources (RFC 7641): created by POST, observed by one client at a time."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from aiocoap import Code, Message, Reliable
from aiocoap.pipe import Pipe

from edge.gates.coap.blocks import Blocks
from edge.gates.coap.formats import answer, failed, refused
from edge.gates.coap.quota import Quota
from edge.gates.coap.transfers import BlockTransfer
from edge.gates.coap.transport import Endpoint
from edge.gates.rate_limit import client_of
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.protocol.access import Access
from edge.protocol.errors import NotFound, NotReady, TooManyRequests

_NUMBERS = 1 << 24
"""Observe numbers have 24 bits (RFC 7641, section 3.4)."""
_NOTIFY_TIMEOUT = 1.0
"""Seconds to notify all observers during shutdown."""
_DAY = 86_400
"""Max-Age of notifications in seconds. A notification reports a change, which does not become stale."""


class ObservedSubscription:
    """One subscription. It restarts for each observer, so that none misses notifications sent to an earlier one."""

    def __init__(self, registry: ObserveRegistry, message: dict[str, Any], access: Access, peer: str) -> None:
        """`message`: the subscribe message; `access`: permissions of its client; `peer`: origin of the request."""
        # Not guessable: without security, the name in the path is all that protects a subscription.
        self.name = secrets.token_urlsafe(12)
        self.client = access.client
        self.who = client_of(access, peer)
        self.message = message
        self._peer = peer
        self._registry = registry
        self._line: _Line | None = None
        self._session: Session | None = None
        self._taken = False
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> _Line:
        """Subscribe; returns when sequence 0 or an error has arrived (`_Line.first`)."""
        if self._line is not None:
            self._line.finish(NotFound("Another observer follows this subscription now; each needs one of its own"))
        self._taken = False
        self._release()
        line = self._line = _Line(self._registry)
        self._session = Session(self._registry.sessions, line, self._peer)
        self._session.receive(json.dumps(self.message))
        self._wait_for_observer()
        await asyncio.wait([line.first])
        return line

    async def follow(self, pipe: Pipe) -> Message:
        """Serve an observer until it is gone. Returns the final response."""
        said = None
        while said is None:
            said = await self._serve(pipe)
        return said

    async def _serve(self, pipe: Pipe) -> Message | None:
        """Serve an observer over one line. None: it needs a new line, because it did not accept all of this one."""
        # The first observer takes the line of the POST request, whose sequence 0 it has not received yet.
        line = await self.begin() if self._taken or self._line is None else self._line
        if "error" in line.first.result():
            if line is self._line:
                self.end()
            return failed(pipe.request, line.first.result())
        self._taken = True
        if self._timer is not None:
            self._timer.cancel()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._registry.observers.add(task)
        try:
            return await line.serve(pipe)
        finally:
            self._registry.observers.discard(task)
            line.leave(pipe)
            # A later observer has replaced the line otherwise, and this subscription is not unobserved.
            if line is self._line:
                self._wait_for_observer()

    def as_query(self, authorization: str | None) -> dict[str, Any]:
        """Return the message that queries its complete result once."""
        body = {**self.message["subscribe"], "authorization": authorization}
        # A query has no such member.
        body.pop("timeout", None)
        return {"query": body}

    def end(self) -> None:
        """End the subscription: it has no observer, or its client deleted it."""
        self._registry.forget(self)
        if self._line is not None:
            self._line.finish(NotFound("This subscription has ended; make another one with POST /subscribe"))
        self._release()

    def stop(self) -> None:
        """End the subscription because the gateway stops."""
        if self._line is not None:
            self._line.finish(NotReady("The gateway is stopping; subscribe again in a few seconds"))
        self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._session is not None:
            self._session.close()

    def _wait_for_observer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._registry.patience, self.end)


class ObserveRegistry:
    """The subscriptions of the gate."""

    def __init__(
        self, sessions: Sessions, endpoint: Endpoint, blocks: Blocks, *, limit: int, patience: float, ping: float
    ) -> None:
        """Times in seconds. `patience`: how long a subscription waits for an observer; `ping`: interval of checks for
        observers.
        """
        self.sessions = sessions
        self.endpoint = endpoint
        self.blocks = blocks
        self.patience = patience
        self.ping = ping
        self.observers: set[asyncio.Task[Any]] = set()
        """The tasks that serve observers."""
        self._quota = Quota(limit, "subscriptions", "coap.max_subscriptions")
        self._followed: dict[str, ObservedSubscription] = {}
        self._number = 0

    async def create(
        self, message: dict[str, Any], access: Access, peer: str
    ) -> tuple[ObservedSubscription, dict[str, Any]]:
        """Subscribe. Returns the subscription with sequence 0, or with the error. Raises `TooManyRequests`."""
        subscription = ObservedSubscription(self, message, access, peer)
        self._quota.take(subscription.who)
        self._followed[subscription.name] = subscription
        try:
            first = (await subscription.begin()).first.result()
        except asyncio.CancelledError:
            subscription.end()
            raise
        if "error" in first:
            subscription.end()
        return subscription, first

    def find(self, name: str, client: str) -> ObservedSubscription:
        """Return a subscription of this client. Raises `NotFound`."""
        subscription = self._followed.get(name)
        if subscription is None or subscription.client != client:
            raise NotFound(f'Subscription "{name}" does not exist; make one with POST /subscribe')
        return subscription

    def forget(self, subscription: ObservedSubscription) -> None:
        """Remove an ended subscription."""
        # May be called twice: by the end of the subscription, and by its failed start.
        if self._followed.pop(subscription.name, None) is not None:
            self._quota.release(subscription.who)

    async def stop(self) -> None:
        """Notify all observers that the gateway stops."""
        for subscription in list(self._followed.values()):
            self.forget(subscription)
            subscription.stop()
        if self.observers:
            # Without a limit, an unreachable observer would delay the stop by the retransmissions of CoAP.
            await asyncio.wait(self.observers, timeout=_NOTIFY_TIMEOUT)

    def number(self) -> int:
        """Return the next observe number. Numbers increase over all observers, so that a new registration gets a
        larger one.
        """
        self._number = (self._number + 1) % _NUMBERS
        return self._number


class _Line:
    """Connection from a session to an observer, which confirms notifications; implements `ClientConnection` of
    `edge.gates.outgoing`.

    A blockwise notification counts as accepted when its last block was requested: the acknowledgement is for the
    first.
    """

    def __init__(self, registry: ObserveRegistry) -> None:
        self.first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._registry = registry
        self._pipe: Pipe | None = None
        self._came = asyncio.Event()
        self._transfer: BlockTransfer | None = None
        """The last notification, if it is blockwise."""
        self._over: asyncio.Future[Callable[[Message], Message] | None] = asyncio.get_running_loop().create_future()

    @property
    def writable(self) -> bool:
        """Whether the observer has accepted everything sent so far."""
        if not self.first.done():
            return True
        return self._pipe is not None and self._free(self._pipe.request)

    @property
    def unsent(self) -> int:
        """Zero: blockwise transfers have their own account."""
        return 0

    def write(self, text: str) -> None:
        """Pass the first message to the subscriber, and all others to the observer."""
        content = json.loads(text)
        if not self.first.done():
            self.first.set_result(content)
        elif "error" in content:
            self._finish(lambda request: failed(request, content))
        elif self._pipe is not None:
            self._notify(self._pipe, content)

    async def write_and_wait(self, text: str) -> bool:
        """Send when the observer has accepted everything. False: it did not, and the subscription restarts."""
        if not await self.taken():
            return False
        self.write(text)
        return True

    async def taken(self) -> bool:
        """Wait until there is an observer that has accepted everything. False: as in `write_and_wait`."""
        while not self.writable:
            await self._came.wait()
            if self._pipe is not None and not await self._freed(self._pipe.request):
                self._finish(None)
                return False
        return True

    def close(self, code: int, reason: str) -> None:
        """Do nothing: the error that was written before ends the observation."""

    def abort(self) -> None:
        """Do nothing."""

    def finish(self, error: NotFound | NotReady) -> None:
        """End the observation with an error."""
        if not self.first.done():
            self.first.set_result(error.to_message())
        self._finish(lambda request: refused(request, error))

    async def serve(self, pipe: Pipe) -> Message | None:
        """Send sequence 0 and all later notifications to an observer, and check at intervals whether it is reachable.

        Returns the final response; None if the subscription restarts.
        """
        self._pipe = pipe
        self._notify(pipe, self.first.result())
        self._came.set()
        endpoint, remote = self._registry.endpoint, pipe.request.remote
        while not self._over.done():
            await asyncio.wait([self._over], timeout=self._registry.ping)
            # A message in flight proves reachability by itself: its acknowledgement or timeout comes anyway.
            if not (self._over.done() or endpoint.busy(remote)):
                endpoint.ping(remote)
        last = self._over.result()
        return None if last is None else last(pipe.request)

    def leave(self, pipe: Pipe) -> None:
        """Forget an observer that is gone."""
        if self._pipe is pipe:
            self._pipe = None
            self._came.clear()
            if self._transfer is not None:
                self._transfer.forget()

    def _free(self, request: Message) -> bool:
        """Whether no message is in flight to the observer, and it has received the last notification completely."""
        moving = self._registry.blocks.transfer(request)
        return not (
            self._registry.endpoint.busy(request.remote)
            or (moving is not None and moving.moves)
            or (self._transfer is not None and not self._transfer.whole)
        )

    async def _freed(self, request: Message) -> bool:
        """Wait until the observer is free. False: it stopped requesting blocks, or they are not stored any more."""
        await self._registry.endpoint.free(request.remote)
        moving = self._registry.blocks.transfer(request)
        if moving is not None:
            await moving.end()
        return self._transfer is None or await self._transfer.end()

    def _notify(self, pipe: Pipe, content: dict[str, Any]) -> None:
        message = answer(pipe.request, content["notification"], Code.CONTENT)
        # Ordered by this number; the sequence of the subscription is in the payload.
        message.opt.observe = self._registry.number()
        message.opt.max_age = _DAY
        try:
            message = self._registry.blocks.first(pipe.request, message)
        except TooManyRequests as error:
            failure = error
            self._finish(lambda request: refused(request, failure))
            return
        self._transfer = None if message.opt.block2 is None else self._registry.blocks.transfer(pipe.request)
        # Confirmable: a lost notification would leave a gap in the deltas (RFC 7641 allows either kind).
        message.transport_tuning = Reliable()
        pipe.add_response(message, is_last=False)

    def _finish(self, last: Callable[[Message], Message] | None) -> None:
        if not self._over.done():
            self._over.set_result(last)
