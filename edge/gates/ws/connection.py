"""A client's WebSocket as its session writes to it."""

from __future__ import annotations

import asyncio
import logging
import socket as sockets

from websockets.asyncio.server import ServerConnection, broadcast
from websockets.protocol import State

_FULL = 32 * 1024
"""Bytes on their way to a client from which on it counts as not reading."""

_UNSENT = 16 * 1024
"""Bytes that wait in the kernel for a client. It would take megabytes: thousands of notifications, which are old when
they are read, and are lost with the connection. What it does not take waits with us, where it is merged."""

logger = logging.getLogger(__name__)


class WsConnection:
    """The sending side of a WebSocket; a `Connection` of `edge.gates.outgoing`."""

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
        """Whether little enough is on its way to the client."""
        return self.unsent < _FULL

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        return self._socket.transport.get_write_buffer_size()

    def write(self, text: str) -> None:
        """Send without waiting. Nothing if the connection is lost, which its protocol learns a little later."""
        if self._socket.transport.is_closing():
            return
        # The only public way of websockets to send without a coroutine: no task switch for each notification.
        broadcast([self._socket], text)

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until little enough is on its way. False: the connection is closed."""
        self.write(text)
        del text  # only the transport holds it from now on
        return await self.taken()

    async def taken(self) -> bool:
        """Wait until little enough is on its way. False: the connection is closed."""
        if not self._open:
            return False
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._socket.drain()
        except TimeoutError:
            # Pings go the same blocked way, so the keep-alive of websockets does not see this death.
            self._socket.transport.abort()
            return False
        except OSError:
            return False
        return self._open

    @property
    def _open(self) -> bool:
        return self._socket.state is State.OPEN and not self._socket.transport.is_closing()

    def close(self, code: int, reason: str) -> None:
        """Begin to close, once."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(code, reason))

    def abort(self) -> None:
        """Close at once; what the client has not taken is lost."""
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
