"""A client that disconnects while answers are being sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from edge.gates.ws.connection import WsConnection


@pytest.fixture
async def socket() -> Any:
    """The gateway's side of a connection."""
    accepted: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def handler(socket: ServerConnection) -> None:
        accepted.set_result(socket)
        await socket.wait_closed()

    async with serve(handler, "127.0.0.1", 0) as server:
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
