"""Sending side of a WebSocket for its session."""

from __future__ import annotations

import asyncio
import logging
import socket as sockets

from websockets.asyncio.server import ServerConnection, broadcast
from websockets.protocol import State

_FULL = 32 * 1024
"""Unaccepted bytes above which a client counts as not reading."""

_UNSENT = 16 * 1024
"""Size of the kernel's send buffer. The default holds megabytes: thousands of notifications that are outdated when
they are read, and lost with the connection. Beyond this size they wait in the gate, where they are merged.
"""

logger = logging.getLogger(__name__)


class WsConnection:
    """Sending side of a WebSocket; implements `Connection` of `edge.gates.outgoing`."""

    def __init__(self, socket: ServerConnection, *, write_timeout: float, close_timeout: float) -> None:
        self._socket = socket
        self._write_timeout = write_timeout
        self._close_timeout = close_timeout
        self._closing: asyncio.Task[None] | None = None
        if hasattr(sockets, "TCP_NOTSENT_LOWAT"):
            tcp = socket.transport.get_extra_info("socket")
            tcp.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, _UNSENT)

    @property
    def writable(self) -> bool:
        """Whether few enough bytes are unaccepted."""
        return self.unsent < _FULL

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not accepted."""
        return self._socket.transport.get_write_buffer_size()

    def write(self, text: str) -> None:
        """Send without waiting. Ignored if the connection is lost, which the protocol may detect later."""
        if self._socket.transport.is_closing():
            return
        # The only public way in websockets to send without a coroutine; saves a task switch for each notification.
        broadcast([self._socket], text)

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until few enough bytes are unaccepted. False: the connection is closed."""
        self.write(text)
        del text  # from now on only the transport holds it
        return await self.taken()

    async def taken(self) -> bool:
        """Wait until few enough bytes are unaccepted. False: the connection is closed."""
        if not self._open:
            return False
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._socket.drain()
        except TimeoutError:
            # Pings are blocked by the same data, so the keep-alive of websockets does not detect this.
            self._socket.transport.abort()
            return False
        except OSError:
            return False
        return self._open

    @property
    def _open(self) -> bool:
        return self._socket.state is State.OPEN and not self._socket.transport.is_closing()

    def close(self, code: int, reason: str) -> None:
        """Start to close, once."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(code, reason))

    def abort(self) -> None:
        """Close at once; unaccepted data is lost."""
        self._socket.transport.abort()

    async def closed(self) -> None:
        """Wait for the end of a `close`, if there was one."""
        if self._closing is not None:
            await self._closing

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self._close_timeout):
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.transport.abort()
