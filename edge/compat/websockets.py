"""Undocumented names of websockets, for its memory and its writes. Checked with websockets 15.0.

The objects of a connection refer to each other, so only the garbage collector frees a closed one
(https://github.com/python-websockets/websockets/issues/1749). The library has no public access to the bytes that it
holds for a client. And it sends each message with a system call of its own, which costs more than all other work on a
notification.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.protocol import OPEN, SEND_EOF
from websockets.server import ServerProtocol

_TEXT: Final = 0x81
"""First byte of a text message in one frame (RFC 6455, section 5.2)."""
_SHORT_HEADER: Final = Struct("!BB").pack
_HEADER: Final = Struct("!BBH").pack
_LONG_HEADER: Final = Struct("!BBQ").pack


def queue_text(connection: ServerConnection, text: str) -> int:
    """Queue a text message behind the frames that wait to be sent. Return its bytes; 0 if the connection is closing.

    The library's own queue holds it, so the library sends it before any later frame of its own.
    """
    protocol = connection.protocol
    if protocol.state is not OPEN:
        return 0
    payload, queue = text.encode(), protocol.writes
    if protocol.extensions:  # compression
        protocol.send_text(payload)
    else:  # the library takes 1 us for it
        queue.append(_header(len(payload)) + payload)
    return len(queue[-1])


def join_queued(protocol: ServerProtocol) -> None:
    """Join all queued frames, so that the library sends them with one system call if the kernel accepts them."""
    queue = protocol.writes
    if len(queue) > 1 and SEND_EOF not in queue:
        queue[:] = [b"".join(queue)]


def _header(length: int) -> bytes:
    """Return the header of an unmasked text frame (RFC 6455, section 5.2)."""
    if length < 126:
        return _SHORT_HEADER(_TEXT, length)
    return _HEADER(_TEXT, 126, length) if length < 0x10000 else _LONG_HEADER(_TEXT, 127, length)


def held_bytes(connection: ServerConnection, frame: int) -> int:
    """Return the received bytes that wait: unparsed, or in unread messages with `frame` bytes for each frame."""
    queue = connection.recv_messages.frames.queue if connection.request is not None else ()
    return len(connection.protocol.reader.buffer) + sum(len(each.data) + frame for each in queue)


def release(connection: ServerConnection, logger: logging.Logger) -> tuple[asyncio.Task[None] | None, list[Exception]]:
    """Break the reference cycles of a lost connection, except those through its errors.

    `logger` replaces the library's logger. Returns the task of the pings, and the errors: both may refer to frames that
    refer to the connection.
    """
    protocol = connection.protocol
    keepalive, connection.keepalive_task = connection.keepalive_task, None
    connection.logger = protocol.logger = logger  # the library's is an adapter that refers to the connection
    connection.recv_messages.pause = connection.recv_messages.resume = _nothing
    protocol.parser.close()
    errors = (connection.recv_exc, protocol.parser_exc, protocol.handshake_exc)
    return keepalive, [error for error in errors if isinstance(error, Exception)]


def _nothing() -> None:
    pass
