"""Limits of a connection to the embedded broker: valid packets, packet size, time to accept data."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from amqtt.adapters import StreamReaderAdapter

from edge.adapters.broker_auth import ANYBODY, ConnectedClient
from edge.adapters.broker_backlog import Backlog
from edge.adapters.broker_packets import CONNECT, PacketBoundaries, content_fault
from edge.compat.amqtt import TransportWriter

_log = logging.getLogger(__name__)

STALLED = 10.0
"""Seconds for a client to read waiting data."""
_SILENCE = 1.5
"""Silence of a client after which its connection ends, as a multiple of its keep-alive ([MQTT-3.1.2-24])."""
_GRACE = 1.0
"""Seconds to read what arrived while the process stood still."""
_READ_ENOUGH = 65536
"""Bytes in the connection's buffer below which writers do not wait."""


class BoundedReader(StreamReaderAdapter):  # type: ignore[misc] # amqtt tells no types
    """Ends the stream at a packet that is too large or violates the standard. amqtt sees complete packets only."""

    def __init__(self, reader: asyncio.StreamReader, limit: int, backlog: Backlog | None = None) -> None:
        """`limit`: maximum packet in bytes. While the `backlog` is full, nothing is read after the first packet."""
        super().__init__(reader)
        self._limit = limit
        self._backlog = backlog
        self._begun = False
        self._ended = False
        self._packets = PacketBoundaries()
        self._received = b""
        """Beginning of the packet that is being received. It survives if amqtt cancels a read."""
        self._ahead = b""
        """Packet that amqtt reads."""
        self._position = 0
        """Bytes of it that amqtt has read."""
        self._heard = 0.0
        """Time of the last data, in seconds of the event loop's clock."""
        self._look: asyncio.TimerHandle | None = None
        """The next look whether the client is silent for too long. A timer for each read would take longer."""

    def limit_silence(self, keep_alive: int, cut: Callable[[], None]) -> None:
        """Call `cut` when the client has been silent for too long. `keep_alive`: of its CONNECT (s), 0: never."""
        if keep_alive:
            self._heard = asyncio.get_running_loop().time()
            self._look_later(_SILENCE * keep_alive, _SILENCE * keep_alive, cut)

    def end(self) -> None:
        """Note that the connection has ended."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_later(self, seconds: float, limit: float, cut: Callable[[], None], *, last: bool = False) -> None:
        def look() -> None:
            now = loop.time()
            if self._backlog is not None and self._backlog.full:
                self._heard = now  # the client is not read
            left = self._heard + limit - now
            if left > 0:
                self._look_later(left, limit, cut)
            elif last:
                self._look = None
                _log.info("broker.client_silent", extra={"seconds": limit})
                cut()
            else:  # the process may have stood still, with data of the client waiting
                self._look_later(_GRACE, limit, cut, last=True)

        loop = asyncio.get_running_loop()
        self._look = loop.call_later(seconds, look)

    async def first(self) -> bytes:
        """Return the first packet, a CONNECT; empty if the client sends none. Use `put_back` before reading on."""
        return await self._next()

    def put_back(self, packet: bytes) -> None:
        """Return this packet at the next read."""
        self._ahead, self._position = packet, 0

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes of a packet; empty at the end, and after a packet that violates the standard."""
        if not n:
            return b""
        if not self._ahead:
            self.put_back(await self._next())
        end = len(self._ahead) if n < 0 else self._position + n
        data = self._ahead[self._position : end]
        if end < len(self._ahead):
            self._position = end
        else:
            self.put_back(b"")
        return data

    async def _next(self) -> bytes:
        """Receive a packet; empty at the end."""
        while data := await self._receive(self._packets.left or 1):
            self._received += data
            valid = self._packets.take(data)
            fault = self._order_fault() if valid else self._packets.fault
            if not fault and self._packets.complete:
                packet, self._received, self._begun = self._received, b"", True
                fault = content_fault(packet)
                if not fault:
                    return packet
            if fault:
                _log.info("broker.bad_packet", extra={"reason": fault})
                break
        self._ended = True
        return b""

    def _order_fault(self) -> str:
        """Return whether a packet begins that is not allowed now ([MQTT-3.1.0-1] and [MQTT-3.1.0-2])."""
        if (self._received[0] >> 4 == CONNECT) is not self._begun:
            return ""
        return "a second CONNECT" if self._begun else "a first packet that is not CONNECT"

    async def _receive(self, n: int) -> bytes:
        # A read beyond the limit belongs to a packet that is too large: refuse it before its memory is allocated.
        if self._ended or n > self._limit:
            return b""
        if self._backlog is not None and self._begun:
            # Back-pressure: TCP then slows down the client, instead of messages in memory.
            await self._backlog.room()
        try:
            data: bytes = await super().read(n)
        except (OSError, asyncio.IncompleteReadError):
            return b""
        if self._look is not None:
            self._heard = asyncio.get_running_loop().time()
        return data


class BoundedWriter(TransportWriter):
    """Closes the connection of a client that does not read, so that its messages cannot accumulate."""

    def __init__(self, writer: asyncio.StreamWriter, limit: int | None, backlog: Backlog | None = None) -> None:
        """`limit`: maximum waiting bytes; None: unlimited, and counted by the `backlog`."""
        super().__init__(writer)
        self._limit = limit
        self._backlog = backlog
        self._waiting = 0
        self.is_own = limit is None
        """Whether the client is the gateway itself."""
        self.client: ConnectedClient = ANYBODY
        """The authenticated client."""
        self.session = ""
        """Session of this connection; empty without a client identifier."""

    def write(self, data: bytes) -> None:
        """Send unless the connection is lost; asyncio would log a line for each further packet."""
        if not self.transport.is_closing():
            super().write(data)

    async def drain(self) -> None:
        """Wait until the client has read enough. Raises `ConnectionResetError` if it does not."""
        if self.is_closed or self.transport.get_write_buffer_size() < _READ_ENOUGH:
            return
        try:
            async with asyncio.timeout(STALLED):
                await super().drain()
        except TimeoutError:
            self.cut()
            raise ConnectionResetError("the client does not read") from None

    def begin(self, length: int) -> bool:
        """Count a message to send. False: too many bytes wait, and the connection is closed."""
        self._count(length)
        if self._limit is None or self._waiting <= self._limit:
            return True
        if not self.is_closed:
            who = self.session or self.client.name
            _log.warning("broker.client_cut", extra={"client": who, "unread": self._waiting})
            self.cut()
        return False

    def end(self, length: int) -> None:
        """Uncount an acknowledged or timed out message."""
        self._count(-length)

    def _count(self, length: int) -> None:
        self._waiting += length
        if self._backlog is not None:
            self._backlog.add(length)

    def refuse_unfinished(self) -> None:
        """Close the connection of a client with too many messages of QoS 2 that it has not released."""
        if not self.is_closed:
            _log.warning("broker.client_cut", extra={"client": self.session or self.client.name, "unfinished": True})
            self.cut()

    def cut(self) -> None:
        """Close the connection at once."""
        self.is_closed = True
        self.transport.abort()
