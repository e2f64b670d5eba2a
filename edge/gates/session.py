"""Session of one client, independent of the transport: parses and authorizes messages, and dispatches them."""

from __future__ import annotations

import time

from edge.gates.guard import permitted
from edge.gates.outgoing import ClientConnection
from edge.gates.pending_requests import ask
from edge.gates.rate_limit import client_of
from edge.gates.responses import Responses
from edge.gates.sessions import Sessions
from edge.gates.subscriptions import SessionSubscriptions
from edge.protocol.errors import EdgeError, InvalidRequest, TooLarge, TooManyRequests
from edge.protocol.messages import SubscribeMessage, UnsubscribeMessage, parse_message


class Session:
    """Session of one client. All methods are called on the event loop; only `room` waits."""

    def __init__(self, shared: Sessions, connection: ClientConnection, peer: str) -> None:
        """`peer`: origin of the connection; it identifies the client until authentication (`rate_limit`)."""
        self.shared = shared
        self.peer = peer
        self._responses = Responses(shared, connection, peer, self._overflow)
        self.outgoing = self._responses.outgoing
        self.subscriptions = SessionSubscriptions(self._responses)
        self.closed = False
        self.authorized = False
        """Whether an authorized message has arrived."""

    def receive(self, message: str | bytes) -> None:
        """Process a message of the client. Every problem with it is answered with an error."""
        started = time.perf_counter()
        primitive, counted = "message", False
        try:
            if isinstance(message, bytes):
                raise InvalidRequest("Binary messages are not understood: send JSON as text")
            if size_of(message) > self.shared.limits.max_message:
                limit = f"{self.shared.limits.max_message} bytes ({self.shared.section}.max_message)"
                raise TooLarge(f"The message is longer than {limit}; send a shorter one")
            request = parse_message(message, self.shared.max_alias)
            primitive = request.kind
            access = permitted(self.shared.guard, request)
            # From here on the request counts for its client, no longer for its address.
            counted = self.authorized = True
            self._count(client_of(access, self.peer), request.alias)
            if isinstance(request, SubscribeMessage):
                self.subscriptions.subscribe(request, access, started)
            elif isinstance(request, UnsubscribeMessage):
                self.subscriptions.unsubscribe(request, access, started)
            else:
                ask(self._responses, request, access, started)
        except EdgeError as error:
            if counted:
                self.refuse(error, primitive, started)
            else:
                self.refuse_uncounted(error, primitive, started)

    async def room(self) -> None:
        """See `Responses.room`."""
        await self._responses.room()

    def refuse(self, error: EdgeError, primitive: str, started: float) -> None:
        """See `Responses.refuse`."""
        self._responses.refuse(error, primitive, started)

    def refuse_uncounted(self, error: EdgeError, primitive: str, started: float) -> None:
        """Count a request that belongs to no client yet, and refuse it: with another error beyond the limit."""
        self.refuse(self._counted(error), primitive, started)

    def close(self, *, lost: bool = False) -> None:
        """End the session because the client is gone, with all its subscriptions and those that are about to start.

        `lost`: the client did not close the connection properly, so it may resume its subscriptions.
        """
        if self.closed:
            return
        self.closed = True
        unread = self.outgoing.unread() if lost else None
        self._responses.close()
        self.subscriptions.close(unread)

    def _count(self, who: str, alias: str | None) -> None:
        """Count a request. Raises `TooManyRequests`."""
        try:
            self.shared.rate_limit.request(who, time.monotonic())
        except TooManyRequests as error:
            raise error.with_alias(alias) from None

    def _counted(self, wrong: EdgeError) -> EdgeError:
        """Count an invalid request too. Returns the error to send."""
        try:
            self._count(self.peer, wrong.alias)
        except TooManyRequests as error:
            return error
        return wrong

    def _overflow(self) -> None:
        self.shared.metrics.slow_clients.labels(self.shared.gate).inc()
        self.close(lost=True)


def size_of(text: str) -> int:
    """Return the length of the text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
