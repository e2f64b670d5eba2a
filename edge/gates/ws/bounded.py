"""WebSocket connection with limits that apply before authentication: fragments, control frames, bytes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection
from websockets.frames import DATA_OPCODES, CloseCode, Frame, Opcode
from websockets.protocol import CLOSED, OPEN, Event
from websockets.server import ServerProtocol

from edge.compat.asyncio_transports import Unlink, limit_reads
from edge.compat.websockets import held_bytes, join_queued, release
from edge.engine.admission.byte_quota import Charge
from edge.engine.faults import without_frames
from edge.gates.rate_limit import RateLimit, incoming, peer_of
from edge.protocol.errors import TooManyRequests
from edge.task_errors import drop_error

FRAME: Final = 200
"""Charge of a fragment in bytes in addition to its payload: the library keeps an object for each."""
_SMALL: Final = 1024
"""Payload in bytes above which a frame is not counted as small."""
_CHUNK: Final = 16 * 1024
"""Maximum bytes of one read. The library parses all frames of a chunk at once: up to 2,700 empty pings, 22 ms."""
_UNREAD_PONGS: Final = 64 * 1024
"""Maximum bytes of pongs that wait for a client that sends pings and does not read."""
_LINGER: Final = 1.0
"""Seconds for a client to read the reason before it is disconnected."""

_library_log = logging.getLogger("edge.gates.ws.library")


class BoundedConnection(ServerConnection):
    """The library's connection, closed when the client exceeds a limit, without effects on other clients."""

    def __init__(
        self,
        protocol: ServerProtocol,
        server: Server,
        *,
        rate_limit: RateLimit,
        max_message: int,
        **options: Any,  # noqa: ANN401 - the library's own
    ) -> None:
        """`max_message`: bytes, with `FRAME` for each fragment. `options`: passed to the library."""
        super().__init__(protocol, server, **options)
        self._rate_limit = rate_limit
        self._max_message = max_message
        self._peer = ""
        self._charge: Charge | None = None
        self._fragments = 0
        """Bytes of the fragments of the incomplete message."""
        self._pongs = 0
        """Bytes of pongs since the client had read everything."""
        self._failed = False
        self._unlink: Unlink | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start. Reads smaller chunks than asyncio, so that one chunk of tiny frames does not block the loop."""
        limit_reads(transport, _CHUNK)
        super().connection_made(transport)
        self._unlink = Unlink(transport)
        self._peer = peer_of(*self.remote_address[:2])
        self._charge = self._rate_limit.bytes.charge(incoming(self._peer))
        self.server.handlers[self].add_done_callback(self._handled)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything: the connection has ended."""
        if self._charge is not None:
            self._charge.release()
        super().connection_lost(exc)
        _break_cycles(self)
        if self._unlink is not None:
            self._unlink()

    def _handled(self, _: asyncio.Task[None]) -> None:
        """Drop the handler's error, which may refer to the connection."""
        if self.protocol.state is CLOSED:
            _break_cycles(self)

    def data_received(self, data: bytes) -> None:
        """Process a chunk, and charge for the held data."""
        super().data_received(data)
        self.account()

    def send_data(self) -> None:
        """Send all queued frames with one system call: a chunk of empty pings is answered with thousands of pongs."""
        join_queued(self.protocol)
        super().send_data()

    def account(self) -> None:
        """Charge the client for waiting bytes: unparsed, in fragments, or in unprocessed messages."""
        if self._charge is None or self._failed:
            return
        try:
            self._charge.set(held_bytes(self, FRAME) + self._fragments)
        except TooManyRequests:
            self._fail(CloseCode.TRY_AGAIN_LATER, "too much waits (limits.max_client_bytes, limits.max_total_bytes)")

    def process_event(self, event: Event) -> None:
        """Process one frame, or the opening request."""
        if self._failed:
            return
        if isinstance(event, Frame) and (wrong := self._wrong_with(event)) is not None:
            self._fail(*wrong)
            return
        super().process_event(event)

    def _wrong_with(self, frame: Frame) -> tuple[CloseCode, str] | None:
        """Return close code and reason for a frame that exceeds a limit; None: it does not."""
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
        """Send the reason and disconnect, even if the client does not read it."""
        self._failed = True
        if self._charge is not None:
            self._charge.release()
        if self.protocol.state is OPEN:
            self.protocol.fail(code, reason)
            self.send_data()
        self.loop.call_later(_LINGER, self.transport.abort)


def _break_cycles(connection: ServerConnection) -> None:
    """Break the reference cycles of a lost connection, so that its memory is free at once. Called again after its
    handler.

    Sockets, their transports and the objects of the library refer to each other and to themselves. The garbage
    collector seldom inspects long-lived objects (`edge.garbage`), and a client that does not read leaves up to some
    megabytes behind.
    """
    keepalive, errors = release(connection, _library_log)
    if keepalive is not None:
        keepalive.add_done_callback(drop_error)
    for error in errors:
        without_frames(error)
