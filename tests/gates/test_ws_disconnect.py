"""A client that disconnects while answers are being sent."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from edge.gates.rate_limit import RateLimit
from edge.gates.settings import LimitSettings
from edge.gates.ws.bounded import BoundedConnection
from edge.gates.ws.connection import WsConnection


@pytest.fixture
async def socket() -> Any:
    """The gateway's side of a connection."""
    accepted: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def handler(socket: ServerConnection) -> None:
        accepted.set_result(socket)
        await socket.wait_closed()

    create = partial(BoundedConnection, rate_limit=RateLimit(LimitSettings()), max_message=100_000)
    async with serve(handler, "127.0.0.1", 0, create_connection=create) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}"):
            yield await accepted


async def test_nothing_is_written_to_a_connection_that_is_lost(socket, caplog):
    connection = WsConnection(socket, write_timeout=5, close_timeout=5)
    socket.transport.abort()
    for _ in range(20):
        connection.write("an answer")
    assert await connection.write_and_wait("another") is False
    assert caplog.messages == []


async def test_messages_of_one_turn_of_the_event_loop_are_one_write(socket, monkeypatch):
    written: list[bytes] = []
    write = socket.transport.write
    monkeypatch.setattr(socket.transport, "write", lambda data: (written.append(data), write(data)))
    connection = WsConnection(socket, write_timeout=5, close_timeout=5)
    for number in range(10):
        connection.write(f"message {number}")
    assert not written
    assert connection.unsent > 0
    await asyncio.sleep(0)
    assert len(written) == 1
    assert connection.unsent == 0


async def test_many_bytes_do_not_wait_for_the_end_of_the_turn(socket):
    connection = WsConnection(socket, write_timeout=5, close_timeout=5)
    for _ in range(1000):
        connection.write("x" * 10_000)
        assert sum(map(len, socket.protocol.writes)) < 16 * 1024


async def test_answers_to_pings_of_one_chunk_are_one_write(socket, monkeypatch):
    written: list[bytes] = []
    monkeypatch.setattr(socket.transport, "write", written.append)
    socket.data_received(b"\x89\x80abcd" * 1000)
    assert written == [b"\x8a\x00" * 1000]
