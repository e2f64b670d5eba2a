"""Limits of a connection to the embedded broker: packet size, time to the first packet, time to accept data."""

from __future__ import annotations

import asyncio
import logging

from amqtt.adapters import StreamReaderAdapter

from edge.adapters.broker_auth import ANYBODY, ConnectedClient
from edge.adapters.broker_backlog import Backlog
from edge.adapters.broker_packets import PacketBoundaries
from edge.compat.amqtt import TransportWriter

_log = logging.getLogger(__name__)

BEGIN = 10.0
"""Seconds for a client to send its first packet."""
STALLED = 10.0
"""Seconds for a client to read waiting data."""
_READ_ENOUGH = 65536
"""Bytes in the connection's buffer below which writers do not wait."""


class BoundedReader(StreamReaderAdapter):  # type: ignore[misc] # amqtt tells no types
    """Ends the stream at a packet that is too large, or if the first one does not arrive in time."""

    def __init__(self, reader: asyncio.StreamReader, limit: int, backlog: Backlog | None = None) -> None:
        """`limit`: maximum packet in bytes. While the `backlog` is full, nothing is read."""
        super().__init__(reader)
        self._limit = limit
        self._backlog = backlog
        self._begun = False
        self._ended = False
        self._ahead = b""
        self._packets = PacketBoundaries()

    async def begins(self) -> bool:
        """Wait for the first byte. False: the client sends nothing."""
        first = await self.read(1)
        self.put_back(first)
        return bool(first)

    def put_back(self, data: bytes) -> None:
        """Return this data at the next read, before that of the client."""
        self._ahead = data

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes; empty at the end, and after a packet that violates the standard."""
        if self._ahead:
            data, self._ahead = self._ahead[:n], self._ahead[n:]
            return data
        data = await self._receive(n)
        if not self._packets.take(data):
            _log.info("broker.bad_packet", extra={"reason": self._packets.fault})
            self._ended = True
            return b""
        return data

    async def _receive(self, n: int) -> bytes:
        # A read beyond the limit belongs to a packet that is too large: refuse it before its memory is allocated.
        if self._ended or n > self._limit:
            self._ended = True
            return b""
        data: bytes
        if self._backlog is not None:
            # Back-pressure: TCP then slows down the client, instead of messages in memory.
            await self._backlog.room()
        try:
            if self._begun:
                data = await super().read(n)
            else:
                # Only for the first packet: later silence is limited by the keep-alive (MQTT 3.1.1, section 3.1.2.10).
                data = await asyncio.wait_for(super().read(n), BEGIN)
                self._begun = True
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            self._ended = True
            return b""
        return data


class BoundedWriter(TransportWriter):
    """Closes the connection of a client that does not read, so that its messages cannot accumulate."""

    def __init__(self, writer: asyncio.StreamWriter, limit: int | None, backlog: Backlog | None = None) -> None:
        """`limit`: maximum waiting bytes; None: unlimited, and counted by the `backlog`."""
        super().__init__(writer)
        self._limit = limit
        self._backlog = backlog
        self._waiting = 0
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
