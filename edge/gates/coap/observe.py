"""Subscriptions as observable resources (RFC 7641): created by POST, observed by one client at a time."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

from aiocoap import Message
from aiocoap.pipe import Pipe

from edge.gates.coap.formats import failed, refused
from edge.gates.coap.observer import Notifier, Observer
from edge.gates.coap.quota import Quota
from edge.gates.rate_limit import client_of
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.protocol.access import Access
from edge.protocol.errors import NotFound, NotReady, TooManyRequests

_NOTIFY_TIMEOUT = 1.0
"""Seconds to notify all observers during shutdown."""


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

    def __init__(self, sessions: Sessions, notifier: Notifier, quota: Quota, *, patience: float) -> None:
        """`quota`: of the subscriptions of all clients. `patience`: seconds for which a subscription waits for an
        observer.
        """
        self.sessions = sessions
        self.notifier = notifier
        self.patience = patience
        self.observers: set[asyncio.Task[Any]] = set()
        """The tasks that serve observers."""
        self._quota = quota
        self._followed: dict[str, ObservedSubscription] = {}

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


class _Line:
    """Connection from a session to an observer; implements `ClientConnection` of `edge.gates.outgoing`."""

    def __init__(self, registry: ObserveRegistry) -> None:
        self.first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._registry = registry
        self._observer: Observer | None = None
        self._came = asyncio.Event()
        self._over: asyncio.Future[Callable[[Message], Message] | None] = asyncio.get_running_loop().create_future()

    @property
    def writable(self) -> bool:
        """Whether the observer has accepted everything sent so far."""
        if not self.first.done():
            return True
        return self._observer is not None and self._observer.free

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
        elif self._observer is not None:
            self._notify(self._observer, content)

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
            if self._observer is not None and not await self._observer.freed():
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
        notifier = self._registry.notifier
        observer = self._observer = Observer(notifier, pipe)
        self._notify(observer, self.first.result())
        self._came.set()
        while not self._over.done():
            await asyncio.wait([self._over], timeout=notifier.ping)
            if not self._over.done():
                observer.ping()
        last = self._over.result()
        return None if last is None else last(pipe.request)

    def leave(self, pipe: Pipe) -> None:
        """Forget an observer that is gone."""
        if self._observer is not None and self._observer.pipe is pipe:
            self._observer.leave()
            self._observer = None
            self._came.clear()

    def _notify(self, observer: Observer, content: dict[str, Any]) -> None:
        try:
            observer.notify(content["notification"])
        except TooManyRequests as error:
            failure = error
            self._finish(lambda request: refused(request, failure))

    def _finish(self, last: Callable[[Message], Message] | None) -> None:
        if not self._over.done():
            self._over.set_result(last)
