"""The undocumented names of websockets exist, and `edge.compat.websockets` uses them correctly."""

import asyncio
import gc
import logging
import weakref
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from edge.compat import asyncio_transports
from edge.compat import websockets as compat
from edge.engine.faults import without_frames
from edge.task_errors import drop_error
from tests.support.private_names import check_attributes
from tests.support.waiting import eventually


class Connection(ServerConnection):
    """A connection that is released when it is lost."""

    def connection_made(self, transport):
        super().connection_made(transport)
        self._unlink = asyncio_transports.Unlink(transport)

    def connection_lost(self, exc):
        super().connection_lost(exc)
        self.release()
        self._unlink()

    def release(self):
        keepalive, errors = compat.release(self, logging.getLogger("test"))
        if keepalive is not None:
            keepalive.add_done_callback(drop_error)
        for error in errors:
            without_frames(error)


async def test_a_lost_connection_is_freed_without_the_garbage_collector():
    connections = []

    async def handle(connection):
        names = ("keepalive_task", "recv_messages", "recv_exc", "logger", "request", "server")
        check_attributes("websockets", compat, connection, *names)
        check_attributes("websockets", compat, connection.protocol, "reader", "parser", "parser_exc", "handshake_exc")
        check_attributes("websockets", compat, connection.recv_messages, "frames", "pause", "resume")
        assert compat.held_bytes(connection, 200) == 0
        connections.append(weakref.ref(connection))
        connection.server.handlers[connection].add_done_callback(lambda _, one=connections[-1]: one().release())
        await connection.wait_closed()

    gc.disable()
    try:
        async with serve(handle, "127.0.0.1", 0, create_connection=Connection) as server:
            async with connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
                client.transport.abort()
            await eventually(lambda: connections and connections[0]() is None, "the memory to be freed")
    finally:
        gc.enable()


async def test_bytes_of_unread_messages_are_counted():
    held = asyncio.get_running_loop().create_future()

    async def handle(connection):
        await eventually(lambda: len(connection.recv_messages.frames.queue) == 2, "two messages")
        held.set_result(compat.held_bytes(connection, 200))

    async with (
        serve(handle, "127.0.0.1", 0) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client,
    ):
        await client.send("abc")
        await client.send("de")
        assert await held == 2 * 200 + 5


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_queued_messages_of_any_length_arrive_in_order(compression):
    texts = ["", "a" * 125, "b" * 126, "c" * 65_535, "d" * 65_536, "é" * 40_000, "last"]

    async def handle(connection):
        check_attributes("websockets", compat, connection.protocol, "writes", "extensions")
        sizes = [compat.queue_text(connection, text) for text in texts]
        assert sum(sizes) == sum(map(len, connection.protocol.writes))
        compat.join_queued(connection.protocol)
        assert len(connection.protocol.writes) == 1
        connection.send_data()
        await connection.wait_closed()

    async with _client(handle, compression) as client:
        assert [await client.recv() for _ in texts] == texts


async def test_a_message_that_is_queued_before_a_ping_or_close_is_sent_before_it():
    async def handle(connection):
        compat.queue_text(connection, "first")
        await connection.ping()
        compat.queue_text(connection, "second")
        await connection.close()
        assert compat.queue_text(connection, "too late") == 0
        compat.join_queued(connection.protocol)
        connection.send_data()

    async with _client(handle) as client:
        assert [message async for message in client] == ["first", "second"]


@asynccontextmanager
async def _client(handle, compression=None):
    async with (
        serve(handle, "127.0.0.1", 0, compression=compression) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client,
    ):
        yield client
