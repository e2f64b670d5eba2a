"""Break the reference cycles of a closed connection, so that its memory is free at once.

Sockets, their transports and the objects of the library refer to each other and to themselves. The garbage collector
seldom inspects long-lived objects (`edge.garbage`), and a client that does not read leaves up to some megabytes behind.
"""

from __future__ import annotations

import logging
from typing import Final

from websockets.asyncio.server import ServerConnection

from edge.engine.faults import without_frames
from edge.unlink import drop_error

_LOGGER: Final = logging.getLogger("edge.gates.ws.library")


def unlink(connection: ServerConnection) -> None:
    """Break the cycles of a connection that is lost. To be called again when its handler has ended."""
    protocol = connection.protocol
    if connection.keepalive_task is not None:
        connection.keepalive_task.add_done_callback(drop_error)
        connection.keepalive_task = None
    connection.logger = protocol.logger = _LOGGER  # the library's is an adapter that refers to the connection
    connection.recv_messages.pause = connection.recv_messages.resume = _nothing
    protocol.parser.close()
    for error in (connection.recv_exc, protocol.parser_exc, protocol.handshake_exc):
        if isinstance(error, Exception):
            without_frames(error)


def _nothing() -> None:
    pass
