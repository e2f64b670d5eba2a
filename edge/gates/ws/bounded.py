"""A WebSocket connection with bounds that hold before anybody knows the client: fragments, control frames, bytes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection
from websockets.frames import DATA_OPCODES, CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, OPEN, Event
from websockets.server import ServerProtocol

from edge.engine.admission.byte_quota import Charge
from edge.gates.rate_limit import RateLimit, incoming, peer_of
from edge.gates.ws.unlink import unlink
from edge.protocol.errors import TooManyRequests
from edge.unlink import Unlink

FRAME: Final = 200
"""Bytes that a fragment counts beside its payload: the library keeps an object for each until the message is whole."""
_SMALL: Final = 1024
"""Bytes of payload from which on a frame costs no more than what it carries."""
_CHUNK: Final = 64 * 1024
"""Bytes read at once. The library parses all frames of a chunk in one go: up to 11,000 empty ones, 25 ms."""
_UNREAD_PONGS: Final = 64 * 1024
"""Bytes of pongs that may wait for a client that sends pings and does not read."""
_LINGER: Final = 1.0
"""Seconds that a client has to read why it is disconnected."""


class BoundedConnection(ServerConnection):
    """A connection of the library that ends when the client breaks a bound; other clients do not notice."""

    def __init__(
        self,
        protocol: ServerProtocol,
        server: Server,
        *,
        rate_limit: RateLimit,
        max_message: int,
        **options: Any,  # noqa: ANN401 - the library's own
    ) -> None:
        """`max_message` in bytes, with `FRAME` for each fragment. `options` are the library's."""
        super().__init__(protocol, server, **options)
        self._rate_limit = rate_limit
        self._max_message = max_message
        self._peer = ""
        self._charge: Charge | None = None
        self._fragments = 0
        """Bytes of the fragments of the message that is not whole yet."""
        self._pongs = 0
        """Bytes of pongs since the client had read everything."""
        self._failed = False
        self._unlink: Unlink | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. Reads less at once than asyncio would, so that one chunk of tiny frames holds up nobody."""
        transport.max_size = _CHUNK  # type: ignore[attr-defined]  # of asyncio's socket transports
        super().connection_made(transport)
        self._unlink = Unlink(transport)
        self._peer = peer_of(*self.remote_address[:2])
        self._charge = self._rate_limit.bytes.charge(incoming(self._peer))
        self.server.handlers[self].add_done_callback(self._handled)

    def connection_lost(self, exc: Exception | None) -> None:
        """End; nothing is held any more."""
        if self._charge is not None:
            self._charge.release()
        super().connection_lost(exc)
        unlink(self)
        if self._unlink is not None:
            self._unlink()

    def _handled(self, _: asyncio.Task[None]) -> None:
        """The handler has ended, perhaps with an error that refers to the connection."""
        if self.protocol.state is CLOSED:
            unlink(self)

    def data_received(self, data: bytes) -> None:
        """Take in a chunk, and account for what is held of it."""
        super().data_received(data)
        self.account()

    def account(self) -> None:
        """Charge the client for bytes that wait: unparsed, in fragments, or in messages that nobody has taken yet."""
        if self._charge is None or self._failed:
            return
        queue = self.recv_messages.frames.queue if self.request is not None else ()
        held = len(self.protocol.reader.buffer) + self._fragments + sum(len(frame.data) + FRAME for frame in queue)
        try:
            self._charge.set(held)
        except TooManyRequests:
            self._fail(CloseCode.TRY_AGAIN_LATER, "too much waits (limits.max_client_bytes, limits.max_total_bytes)")

    def process_event(self, event: Event) -> None:
        """Take in one frame, or the request that opens the WebSocket."""
        if self._failed:
            return
        if isinstance(event, Frame) and (wrong := self._wrong_with(event)) is not None:
            self._fail(*wrong)
            return
        super().process_event(event)

    def _wrong_with(self, frame: Frame) -> tuple[CloseCode, str] | None:
        """Which bound a frame breaks: close code and reason. None: it breaks none."""
        size = len(frame.data)
        whole = frame.fin and frame.opcode in (Opcode.TEXT, Opcode.BINARY)
        if size < _SMALL and not whole and not self._may_send_frame():
            return CloseCode.POLICY_VIOLATION, "too many small fragments, pings or pongs in a short time"
        if frame.opcode in DATA_OPCODES:
            self._fragments = 0 if frame.fin else self._fragments + size + FRAME
            if self._fragments > self._max_message:
                return CloseCode.MESSAGE_TOO_BIG, "too many fragments; send the message in fewer"
        elif frame.opcode is Opcode.PING:
            self._pongs = self._pongs + size + FRAME if self.transport.get_write_buffer_size() else 0
            if self._pongs > _UNREAD_PONGS:
                return CloseCode.POLICY_VIOLATION, "answers to pings are not read"
        return None

    def _may_send_frame(self) -> bool:
        try:
            self._rate_limit.frame(self._peer, self.loop.time())
        except TooManyRequests:
            return False
        return True

    def _fail(self, code: CloseCode, reason: str) -> None:
        """Say why and disconnect, whether the client reads it or not."""
        self._failed = True
        if self._charge is not None:
            self._charge.release()
        if self.protocol.state is OPEN:
            self.protocol.fail(code, reason)
            self.send_data()
        self.loop.call_later(_LINGER, self.transport.abort)
