"""Persistent WebSocket to a broker: requests, their answers, and reconnection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import math
from collections import deque
from typing import Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from edge.client.authorization import Authorization, without_token
from edge.client.errors import RETRY_LATER, BadAnswer, ClientError, Closed, NoAnswer, NoConnection, Refused
from edge.client.opening import Opening
from edge.client.options import Options
from edge.client.pending_requests import Message, PendingRequest
from edge.client.remedies import trying_again

_log = logging.getLogger("edge.client")


class WebsocketListener(Protocol):
    """Interface of the component that manages subscriptions."""

    def opened(self) -> None:
        """The WebSocket is open."""
        ...

    def broken(self) -> None:
        """The connection was lost."""
        ...

    def failed(self, error: ClientError) -> None:
        """The application has ended the attempts after this failure."""
        ...

    def closed(self) -> None:
        """The client was closed and does not connect again."""
        ...

    def notified(self, body: Message) -> None:
        """A notification arrived. Raises `BadAnswer`."""
        ...

    def unsubscribed(self, spuid: object) -> None:
        """The broker has ended a subscription as requested."""
        ...

    def refused(self, alias: object, spuid: object, error: Refused) -> bool:
        """An error arrived that answers no request. Returns False if it concerns no subscription."""
        ...


class _GiveUp(Exception):
    """The application has ended the attempts after `failure`."""

    def __init__(self, failure: ClientError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class WebSocketClient:
    """Sends requests in the order of their creation, several at a time. Belongs to one event loop.

    When the connection breaks, unsent and repeatable requests wait for the next one. Other requests without an answer
    raise `NoAnswer`.
    """

    def __init__(self, url: str, options: Options, authorization: Authorization) -> None:
        self._opening = Opening(url, options, authorization)
        self.listener: WebsocketListener | None = None
        self._reason = "not connected yet"
        self._options = options
        self._authorization = authorization
        self._socket: ClientConnection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closed = False
        self._names = itertools.count(1)
        self._numbers = itertools.count()
        self._calls: dict[str, PendingRequest] = {}  # unanswered requests by alias, in the order of creation
        self._outgoing: deque[PendingRequest] = deque()  # messages that are not sent yet
        self._wake = asyncio.Event()
        self._silent_until = 0.0  # loop time until which nothing is sent, because the broker answered 503
        self._room = asyncio.Semaphore(options.in_flight)
        self._heard = False  # whether the broker has sent anything but errors on this connection
        self._refusal: Refused | None = None  # last error of this connection that answers no request

    @property
    def url(self) -> str:
        """Address of the last attempt to connect."""
        return self._opening.url

    @property
    def connected(self) -> bool:
        """Whether the WebSocket is open."""
        return self._socket is not None

    @property
    def started(self) -> bool:
        """Whether the WebSocket is in use."""
        return self._runner is not None

    def start(self) -> None:
        """Connect, and reconnect when necessary. Raises `Closed`."""
        if self._closed:
            raise Closed("the client was closed")
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run(), name=f"edge.client {self.url}")

    async def close(self) -> None:
        """End subscriptions, and fail waiting requests with `Closed`."""
        if self._closed:
            return
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait({self._runner})
        for call in self._calls.values():
            call.fail(Closed("the client was closed"))
        if self.listener is not None:
            self.listener.closed()

    def continues(self, failure: ClientError) -> bool:
        """See `Opening.continues`."""
        return self._opening.continues(failure)

    async def request(self, kind: str, members: Message, deadline: float, *, repeat: bool = False) -> Message:
        """Send `{kind: members}` and return the answer. `deadline` in the loop's time (s); infinite: no deadline.

        Raises `Refused`, `NoAnswer`, `Closed`.
        """
        self.start()
        call: PendingRequest | None = None
        try:
            async with asyncio.timeout_at(None if deadline == math.inf else deadline), self._room:
                alias = self.name()
                call = self.call(kind, alias, members, repeat=repeat)
                return await self.answer(alias, call)
        except TimeoutError:
            reason = "too many requests wait for answers" if call is None else call.reason
            if not self.connected:
                reason = f"no connection to {self.url}: {self._reason}"
            raise NoAnswer(reason, sent=call is not None and call.sent) from None

    def name(self) -> str:
        """Return an unused alias."""
        return f"edge-{next(self._names)}"

    def call(
        self, kind: str, alias: str, members: Message, *, bound: bool = False, repeat: bool = False
    ) -> PendingRequest:
        """Queue a request. `answer` waits for its answer."""
        call = self.say(kind, {**members, "alias": alias}, bound=bound)
        call.repeat = repeat
        self._calls[alias] = call
        return call

    def say(self, kind: str, members: Message, *, bound: bool = True) -> PendingRequest:
        """Queue a message whose answer is ignored."""
        text = json.dumps({kind: members}, ensure_ascii=False)
        call = PendingRequest(next(self._numbers), text, asyncio.get_running_loop().create_future(), bound)
        self._outgoing.append(call)
        self._wake.set()
        return call

    def waits(self, alias: str) -> PendingRequest | None:
        """Return the unanswered request with this alias."""
        call = self._calls.get(alias)
        return None if call is None or call.answer.done() else call

    async def answer(self, alias: str, call: PendingRequest) -> Message:
        """Return the answer to a request. Raises `Refused`, `NoAnswer`, `Closed`."""
        try:
            return await call.answer
        finally:
            if self._calls.get(alias) is call:
                del self._calls[alias]

    async def _run(self) -> None:
        try:
            await self._connect_repeatedly()
        except _GiveUp as end:
            self._runner = None  # the next request connects again
            for call in self._calls.values():
                call.fail(end.failure)
            self._outgoing.clear()
            if self.listener is not None:
                self.listener.failed(end.failure)

    async def _connect_repeatedly(self) -> None:
        options = self._options
        waits = iter(options.backoff)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            failure = await self._connect()
            # A connection that worked resets the back-off. One that breaks at once does not, or the client would
            # reconnect in a tight loop to a broker that accepts and closes connections.
            if self._heard or loop.time() - began > options.backoff.most:
                waits = iter(options.backoff)
            if not self.continues(failure):
                raise _GiveUp(failure)
            if failure.reason != self._reason:
                _log.warning("%s", trying_again(failure))
                self._reason = failure.reason
            await asyncio.sleep(next(waits))

    async def _connect(self) -> NoConnection:
        """Connect and exchange messages until the connection ends. Returns the reason of the end."""
        self._refusal, self._heard = None, False
        connected = False
        try:
            await self._opening.locate()
            authorization = await self._opening.authorization()
            async with self._opening.connect(self.url, authorization) as socket:
                connected = True
                await self._serve(socket)
            return NoConnection(self.url, "the broker closed the connection", cause=self._refusal, lost=True)
        except NoConnection as error:
            return error
        except (OSError, WebSocketException, NoAnswer) as error:
            reason = str(error) or type(error).__name__
            cause, close_reason = self._cause(error), _close_reason(error)
            return NoConnection(self.url, reason, cause=cause, lost=connected, close_reason=close_reason)

    def _cause(self, error: Exception) -> Exception:
        """Return the cause of a lost connection. A broker that closes it because of an error sends the error before."""
        return error if self._refusal is None or self._heard else self._refusal

    async def _serve(self, socket: ClientConnection) -> None:
        sender = asyncio.create_task(self._send(socket))
        self._socket = socket
        self._reason = ""
        _log.info("connected to %s", self.url)
        try:
            self._opening.report(self.url, connected=True)
            if self.listener is not None:
                self.listener.opened()
            async for text in socket:
                self._receive(text)
        finally:
            self._socket = None
            sender.cancel()
            self._broken()
            self._opening.report(self.url, connected=False)
            await asyncio.wait({sender})

    async def _send(self, socket: ClientConnection) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(ConnectionClosed):  # the reader sees the error, too
            while True:
                while self._outgoing:
                    if (wait := self._silent_until - now()) > 0:
                        await asyncio.sleep(wait)
                        continue
                    call = self._outgoing.popleft()
                    if not call.answer.done():
                        call.sent = True
                        # The request may be older than the current address, which the token is not for.
                        allowed = self._authorization.goes_to(self.url)
                        await socket.send(call.text if allowed else without_token(call.text))
                self._wake.clear()
                await self._wake.wait()

    def _broken(self) -> None:
        if self.listener is not None:
            self.listener.broken()
        for call in self._calls.values():
            if call.bound or (call.sent and not call.repeat):
                call.fail(NoAnswer(f"the connection to {self.url} broke before the answer came", sent=call.sent))
        # Send the remaining requests on the next connection, in their order. Unsubscribe requests are valid on the
        # lost connection only, and are dropped: the listener resumes a closed subscription, and ends it then.
        self._outgoing = deque(call for call in self._calls.values() if not call.answer.done())

    def _receive(self, text: str | bytes) -> None:
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise BadAnswer(f"not an object: {text!r:.200}")
            if "error" in message:
                self._refused(message)
                return
            self._heard = True
            if "notification" in message:
                if self.listener is not None:
                    self.listener.notified(message["notification"])
            elif "unsubscribed" in message:
                if self.listener is not None:
                    self.listener.unsubscribed(message["unsubscribed"].get("spuid"))
            else:
                self._answered(message)
        # An invalid message does not end the connection: other requests and subscriptions are not affected.
        except (ValueError, TypeError, AttributeError, BadAnswer) as error:
            failure = BadAnswer(f"{self.url} sent an invalid message: {error}")
            if not self.continues(failure):
                raise _GiveUp(failure) from error
            _log.warning("%s", failure)

    def _answered(self, message: Message) -> None:
        """Match an answer to its request. The alias is in the answer's body, or next to a body that is a list."""
        alias = message.get("alias")
        for body in message.values():
            if isinstance(body, dict):
                alias = body.get("alias", alias)
        call = self.waits(alias) if isinstance(alias, str) else None
        if call is not None:
            call.answer.set_result(message)

    def _refused(self, message: Message) -> None:
        error = Refused.of(message)
        alias = message.get("alias")
        if isinstance(alias, str) and (call := self.waits(alias)) is not None:
            if error.status_code == RETRY_LATER and not call.bound:
                self._postpone(call, error)
            else:
                call.fail(error)
        elif self.listener is not None and self.listener.refused(alias, message.get("spuid"), error):
            pass  # it concerns a subscription
        elif isinstance(alias, str):
            _log.debug("%s says about a request without a caller: %s", self.url, error)
        else:
            # It concerns the connection, or the broker does not repeat aliases.
            self._refusal = error
            failed = [call for call in self._calls.values() if call.sent]
            for call in failed:
                call.fail(error)
            if not failed:
                _log.warning("%s says: %s", self.url, error)

    def _postpone(self, call: PendingRequest, error: Refused) -> None:
        """Send the request again a little later, in its order: the broker starts or stops and has not executed it."""
        call.sent = call.repeat  # an earlier connection may have delivered it
        call.reason = str(error)
        self._outgoing = deque(sorted({*self._outgoing, call}, key=lambda each: each.number))
        self._silent_until = asyncio.get_running_loop().time() + next(iter(self._options.backoff))
        self._wake.set()


def _close_reason(error: Exception) -> str:
    return error.rcvd.reason if isinstance(error, ConnectionClosed) and error.rcvd is not None else ""
