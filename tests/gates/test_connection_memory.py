"""The memory of a closed connection is free at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from edge.gates.outgoing import Outgoing
from edge.gates.session import Session
from edge.gates.settings import WsGateSettings
from edge.gates.ws.bounded import BoundedConnection
from edge.gates.ws.connection import WsConnection
from edge.listener import _Connection  # the socket itself
from tests.support.waiting import eventually

TYPES = (BoundedConnection, Outgoing, Session, WsConnection, _Connection)
RESET = struct.pack("ii", 1, 0)
CLOSE = b"\x88\x82abcd" + bytes(a ^ b for a, b in zip((1000).to_bytes(2), b"ab", strict=True))


def left() -> dict[str, int]:
    """Return the number of connection objects by type."""
    found = [type(each).__name__ for each in gc.get_objects() if isinstance(each, TYPES)]
    return {name: found.count(name) for name in sorted(set(found))}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    assert left() == {}
    gc.disable()
    yield
    gc.enable()


class Client:
    """A WebSocket client with plain bytes that reads on request. Its methods block."""

    def __init__(self, port: int, path: str = "/subscribe", compression: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{compression}\r\n".encode()
        )
        self.socket.recv(4096)

    def send(self, message: Any) -> None:
        text = json.dumps(message).encode()
        assert len(text) < 126
        self.socket.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)

    def subscribe(self) -> None:
        self.send({"subscribe": {"sparql": "SELECT ?o { ?s <urn:long> ?o }", "resume": False}})
        assert b'"notification"' in self.socket.recv(2000)

    def leave(self) -> None:
        """Close with the closing handshake of RFC 6455."""
        self.socket.sendall(CLOSE)
        while self.socket.recv(65536):
            pass
        self.socket.close()

    def vanish(self) -> None:
        """Close without a closing handshake."""
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()


async def change(gateway: Any, number: int) -> None:
    """Send each subscription a notification of 200 KB."""
    rows = " ".join(f"<urn:s{row}> <urn:long> '{number} {row} {'x' * 1000}' ." for row in range(100))
    await gateway.update(f"DELETE WHERE {{ ?s <urn:long> ?o }} ; INSERT DATA {{ {rows} }}")


@pytest.mark.parametrize(
    "compression", ["", "Sec-WebSocket-Extensions: permessage-deflate\r\n"], ids=["plain", "compressed"]
)
@pytest.mark.parametrize("end", [Client.leave, Client.vanish, Client.reset])
async def test_a_client_that_reads_leaves_no_memory(gateway, uncollected, end, compression):
    client = await asyncio.to_thread(Client, gateway.ws_port, compression=compression)
    await asyncio.to_thread(client.subscribe)
    await asyncio.to_thread(end, client)
    await eventually(
        lambda: left() == {}, "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


@pytest.mark.parametrize("end", [Client.vanish, Client.reset])
async def test_a_client_that_does_not_read_leaves_no_memory(gateway, uncollected, end):
    client = await asyncio.to_thread(Client, gateway.ws_port)
    await asyncio.to_thread(client.subscribe)
    for number in range(5):
        await change(gateway, number)
    await asyncio.to_thread(end, client)
    await eventually(
        lambda: left() == {}, "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


async def test_a_client_disconnected_for_not_reading_leaves_no_memory(serve, uncollected):
    async with serve(ws=WsGateSettings(port=0, ping_interval=0.1, ping_timeout=0.2), close_timeout=0.2) as gateway:
        client = await asyncio.to_thread(Client, gateway.ws_port)
        await asyncio.to_thread(client.subscribe)
        for number in range(5):
            await change(gateway, number)
        await eventually(
            lambda: left() == {}, "nothing that is left", seconds=15
        )  # earlier than the end of a silent connection
        client.vanish()


async def test_client_with_too_many_unread_answers_leaves_no_memory(serve, uncollected):
    async with serve(ws=WsGateSettings(port=0, max_pending_answers=2), close_timeout=0.2) as gateway:
        await change(gateway, 0)
        client = await asyncio.to_thread(Client, gateway.ws_port)
        for _ in range(20):
            client.send({"query": {"sparql": "SELECT ?o { ?s <urn:long> ?o }"}})
        await asyncio.sleep(0.5)
        client.vanish()
        await eventually(
            lambda: left() == {}, "nothing that is left", seconds=15
        )  # earlier than the end of a silent connection


@pytest.mark.parametrize("end", [Client.vanish, Client.reset])
async def test_client_at_a_wrong_path_leaves_no_memory(gateway, uncollected, end):
    client = await asyncio.to_thread(Client, gateway.ws_port, "/elsewhere")
    await asyncio.to_thread(end, client)
    await eventually(
        lambda: left() == {}, "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


async def test_a_client_that_exceeds_a_limit_leaves_no_memory(gateway, uncollected):
    client = await asyncio.to_thread(Client, gateway.ws_port)
    client.socket.sendall(b"\x01\x80abcd" + b"\x00\x80abcd" * 20_000)
    await asyncio.to_thread(client.socket.recv, 4096)
    client.vanish()
    await eventually(
        lambda: left() == {}, "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection


async def test_a_client_without_a_request_leaves_no_memory(gateway, uncollected):
    client = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", gateway.ws_port))
    await eventually(left, "the connection at the gateway")
    client.close()
    await eventually(
        lambda: left() == {}, "nothing that is left", seconds=15
    )  # earlier than the end of a silent connection
