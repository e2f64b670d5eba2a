"""Sending side of a WebSocket for its session."""

from __future__ import annotations

import asyncio
import logging
import socket as sockets
from collections.abc import Callable
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

from edge.compat.websockets import queue_text

_FULL = 32 * 1024
"""Unaccepted bytes above which a client counts as not reading."""

_UNSENT = 16 * 1024
"""Size of the kernel's send buffer. The default holds megabytes: thousands of notifications that are outdated when
they are read, and lost with the connection. Beyond this size they wait in the gate, where they are merged.
"""

_TOGETHER: Final = 16 * 1024
"""Bytes of messages that are sent at once, without waiting for more of the same turn of the event loop."""

logger = logging.getLogger(__name__)

Later = Callable[[Callable[[], object]], object]
"""Calls a function before the event loop waits again."""


class WsConnection:
    """Sending side of a WebSocket; implements `ClientConnection` of `edge.gates.outgoing`.

    Messages of one turn of the event loop are sent together: a system call costs more than the other work on them.
    """

    def __init__(
        self, socket: ServerConnection, *, write_timeout: float, close_timeout: float, later: Later | None = None
    ) -> None:
        """`socket`: sends queued frames together, as `BoundedConnection` does. `later`: ends the turn of the event
        loop; None: asyncio's `call_soon`.
        """
        self._socket = socket
        self._later: Later = later or asyncio.get_running_loop().call_soon
        self._queued = 0
        """Bytes of the messages that wait for the end of the turn, possibly more."""
        self._write_timeout = write_timeout
        self._close_timeout = close_timeout
        self._closing: asyncio.Task[None] | None = None
        # Some systems lack the option: there, more notifications wait in the kernel, where they cannot be merged.
        if hasattr(sockets, "TCP_NOTSENT_LOWAT"):
            tcp = socket.transport.get_extra_info("socket")
            tcp.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, _UNSENT)

    @property
    def writable(self) -> bool:
        """Whether few enough bytes are unaccepted."""
        return self._socket.transport.get_write_buffer_size() + self._queued < _FULL

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not accepted."""
        return self._socket.transport.get_write_buffer_size() + self._queued

    def write(self, text: str) -> None:
        """Send without waiting. Ignored if the connection is lost, which the protocol may detect later."""
        if self._socket.transport.is_closing():
            return
        if not self._queued:
            self._later(self._send)
        self._queued += queue_text(self._socket, text)
        if self._queued >= _TOGETHER:
            self._send()

    def _send(self) -> None:
        """Send the messages of this turn."""
        if self._queued:
            self._queued = 0
            self._socket.send_data()

    async def write_and_wait(self, text: str) -> bool:
        """Send, and wait until few enough bytes are unaccepted. False: the connection is closed."""
        self.write(text)
        del text  # from now on only the transport holds it
        return await self.taken()

    async def taken(self) -> bool:
        """Wait until few enough bytes are unaccepted. False: the connection is closed."""
        self._send()
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
