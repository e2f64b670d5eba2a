"""Subscriptions as observable resources (RFC 7641): made by POST, followed by one observer at a time."""

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
from edge.gates.coap.transfers import Transfer
from edge.gates.coap.transport import Endpoint
from edge.gates.rate_limit import client_of
from edge.gates.session import Session, Sessions
from edge.protocol.access import Access
from edge.protocol.errors import NotFound, NotReady, TooManyRequests

_NUMBERS = 1 << 24
"""Of notifications; RFC 7641, section 3.4."""
_FAREWELL = 1.0
"""Seconds that it may take to tell all observers that the gateway stops."""
_DAY = 86_400
"""Seconds that a notification counts as fresh: it tells what changed, which stays true."""


class ObservedSubscription:
    """One subscription. It begins anew for each observer, so that nobody misses what was on its way to another."""

    def __init__(self, following: ObserveRegistry, message: dict[str, Any], access: Access, peer: str) -> None:
        """`message` is the subscribe message; `access` of the client whose it is; `peer` from where it came."""
        self.name = secrets.token_urlsafe(12)
        self.client = access.client
        self.who = client_of(access, peer)
        self.message = message
        self._peer = peer
        self._following = following
        self._line: _Line | None = None
        self._session: Session | None = None
        self._taken = False
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> _Line:
        """Subscribe; done when sequence 0 or an error is there (`_Line.first`)."""
        if self._line is not None:
            self._line.finish(NotFound("Another observer follows this subscription now; each needs one of its own"))
        self._taken = False
        self._release()
        line = self._line = _Line(self._following)
        self._session = Session(self._following.sessions, line, self._peer)
        self._session.receive(json.dumps(self.message))
        self._wait_for_observer()
        await asyncio.wait([line.first])
        return line

    async def follow(self, pipe: Pipe) -> Message:
        """Serve an observer until it is gone. Returns what to say at the end."""
        said = None
        while said is None:
            said = await self._serve(pipe)
        return said

    async def _serve(self, pipe: Pipe) -> Message | None:
        """Serve an observer with one line. None: it is to have another, since it did not take all of this one."""
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
        self._following.observers.add(task)
        try:
            return await line.serve(pipe)
        finally:
            self._following.observers.discard(task)
            line.leave(pipe)
            if line is self._line:
                self._wait_for_observer()

    def as_query(self, authorization: str | None) -> dict[str, Any]:
        """The message that asks for its whole result once."""
        body = {**self.message["subscribe"], "authorization": authorization}
        body.pop("timeout", None)
        return {"query": body}

    def end(self) -> None:
        """It is over: nobody follows, or asks for it."""
        self._following.forget(self)
        if self._line is not None:
            self._line.finish(NotFound("This subscription has ended; make another one with POST /subscribe"))
        self._release()

    def stop(self) -> None:
        """The gateway stops."""
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
        self._timer = asyncio.get_running_loop().call_later(self._following.patience, self.end)


class ObserveRegistry:
    """The subscriptions of the gate."""

    def __init__(
        self, sessions: Sessions, endpoint: Endpoint, blocks: Blocks, *, limit: int, patience: float, ping: float
    ) -> None:
        """In seconds. `patience`: how long a subscription waits for an observer; `ping`: how often it is looked for."""
        self.sessions = sessions
        self.endpoint = endpoint
        self.blocks = blocks
        self.patience = patience
        self.ping = ping
        self.observers: set[asyncio.Task[Any]] = set()
        """The tasks that serve them."""
        self._shares = Quota(limit, "subscriptions", "coap.max_subscriptions")
        self._followed: dict[str, ObservedSubscription] = {}
        self._number = 0

    async def create(
        self, message: dict[str, Any], access: Access, peer: str
    ) -> tuple[ObservedSubscription, dict[str, Any]]:
        """Subscribe. Returns it with sequence 0, or the error. Raises `TooManyRequests`."""
        followed = ObservedSubscription(self, message, access, peer)
        self._shares.take(followed.who)
        self._followed[followed.name] = followed
        try:
            first = (await followed.begin()).first.result()
        except asyncio.CancelledError:
            followed.end()
            raise
        if "error" in first:
            followed.end()
        return followed, first

    def find(self, name: str, client: str) -> ObservedSubscription:
        """A subscription of this client. Raises `NotFound`."""
        followed = self._followed.get(name)
        if followed is None or followed.client != client:
            raise NotFound(f'There is no subscription "{name}"; make one with POST /subscribe')
        return followed

    def forget(self, followed: ObservedSubscription) -> None:
        """It has ended."""
        if self._followed.pop(followed.name, None) is not None:
            self._shares.give_back(followed.who)

    async def stop(self) -> None:
        """Tell all observers that the gateway stops."""
        for followed in list(self._followed.values()):
            self.forget(followed)
            followed.stop()
        if self.observers:
            await asyncio.wait(self.observers, timeout=_FAREWELL)

    def number(self) -> int:
        """The next number of a notification: larger than all before, also for an observer that registers again."""
        self._number = (self._number + 1) % _NUMBERS
        return self._number


class _Line:
    """From a session to an observer, which confirms what it gets; a `Connection` of `edge.gates.outgoing`.

    A notification that goes in blocks is taken when its last block was asked for: the acknowledgement is of the first.
    """

    def __init__(self, following: ObserveRegistry) -> None:
        self.first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._following = following
        self._pipe: Pipe | None = None
        self._came = asyncio.Event()
        self._told: Transfer | None = None
        """The last notification, if it goes in blocks."""
        self._over: asyncio.Future[Callable[[Message], Message] | None] = asyncio.get_running_loop().create_future()

    @property
    def writable(self) -> bool:
        """Whether the observer has taken all so far."""
        if not self.first.done():
            return True
        return self._pipe is not None and self._free(self._pipe.request)

    @property
    def unsent(self) -> int:
        """None: what goes in blocks has an account of its own."""
        return 0

    def write(self, text: str) -> None:
        """The first message is for who subscribes, all others for the observer."""
        content = json.loads(text)
        if not self.first.done():
            self.first.set_result(content)
        elif "error" in content:
            self._finish(lambda request: failed(request, content))
        elif self._pipe is not None:
            self._notify(self._pipe, content)

    async def write_and_wait(self, text: str) -> bool:
        """Send when there is an observer that has taken all so far. False: it left some of it, and begins anew."""
        if not await self.taken():
            return False
        self.write(text)
        return True

    async def taken(self) -> bool:
        """Wait until there is an observer that has taken all so far. False: likewise."""
        while not self.writable:
            await self._came.wait()
            if self._pipe is not None and not await self._freed(self._pipe.request):
                self._finish(None)
                return False
        return True

    def close(self, code: int, reason: str) -> None:
        """The error that was written before is the end already."""

    def abort(self) -> None:
        """Likewise."""

    def finish(self, error: NotFound | NotReady) -> None:
        """Nothing more will come."""
        if not self.first.done():
            self.first.set_result(error.to_message())
        self._finish(lambda request: refused(request, error))

    async def serve(self, pipe: Pipe) -> Message | None:
        """Tell an observer sequence 0 and all that follows. Sees now and then whether it is there.

        Returns what to say at the end; None where it begins anew.
        """
        self._pipe = pipe
        self._notify(pipe, self.first.result())
        self._came.set()
        endpoint, remote = self._following.endpoint, pipe.request.remote
        while not self._over.done():
            await asyncio.wait([self._over], timeout=self._following.ping)
            if not (self._over.done() or endpoint.busy(remote)):
                endpoint.ping(remote)
        last = self._over.result()
        return None if last is None else last(pipe.request)

    def leave(self, pipe: Pipe) -> None:
        """The observer is gone."""
        if self._pipe is pipe:
            self._pipe = None
            self._came.clear()
            if self._told is not None:
                self._told.forget()

    def _free(self, request: Message) -> bool:
        """Whether nothing is on its way to the observer, and it has the whole of the last notification."""
        moving = self._following.blocks.transfer(request)
        return not (
            self._following.endpoint.busy(request.remote)
            or (moving is not None and moving.moves)
            or (self._told is not None and not self._told.whole)
        )

    async def _freed(self, request: Message) -> bool:
        """Wait for that. False: it does not ask for the rest any more, or the rest is not kept."""
        await self._following.endpoint.free(request.remote)
        moving = self._following.blocks.transfer(request)
        if moving is not None:
            await moving.end()
        return self._told is None or await self._told.end()

    def _notify(self, pipe: Pipe, content: dict[str, Any]) -> None:
        message = answer(pipe.request, content["notification"], Code.CONTENT)
        message.opt.observe = self._following.number()
        message.opt.max_age = _DAY
        try:
            message = self._following.blocks.first(pipe.request, message)
        except TooManyRequests as error:
            told = error
            self._finish(lambda request: refused(request, told))
            return
        self._told = None if message.opt.block2 is None else self._following.blocks.transfer(pipe.request)
        message.transport_tuning = Reliable()
        pipe.add_response(message, is_last=False)

    def _finish(self, last: Callable[[Message], Message] | None) -> None:
        if not self._over.done():
            self._over.set_result(last)
