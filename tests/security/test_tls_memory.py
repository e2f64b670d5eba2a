"""The memory of a closed connection with TLS and permissions is free soon after."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
from asyncio.selector_events import _SelectorSocketTransport
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from secured import Harness, settings

from edge.gates.authorization_watch import AuthorizationWatch
from edge.gates.session import Session
from edge.gates.ws.bounded import BoundedConnection
from edge.gateway import Gateway
from edge.listener import _Connection
from tests.support.waiting import eventually

TYPES = (BoundedConnection, Session, AuthorizationWatch, _Connection)
OPEN = (
    b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def left() -> list[str]:
    found = [type(each).__name__ for each in gc.get_objects() if isinstance(each, TYPES)]
    closed = [each for each in gc.get_objects() if type(each) is _SelectorSocketTransport and each._sock is None]
    return [*found, *(type(each).__name__ for each in closed)]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    """Return a gateway whose idle connections time out too late to free their memory during a test."""
    async with Gateway(settings(tmp_path / "data", http={"keep_alive": 3600})) as gateway:
        yield Harness(gateway)


@pytest.fixture
def uncollected(harness) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def subscribe(port: int, token: str) -> None:
    """Connect, subscribe, and disconnect without closing."""
    with trusting().wrap_socket(socket.create_connection(("127.0.0.1", port), 20)) as client:
        client.sendall(OPEN)
        client.recv(4096)
        message = {"subscribe": {"sparql": "SELECT ?o { ?s <urn:p> ?o }", "authorization": f"Bearer {token}"}}
        text = json.dumps(message).encode()
        client.sendall(b"\x81" + bytes([0x80 | 126]) + len(text).to_bytes(2) + b"\0\0\0\0" + text)
        assert b'"notification"' in client.recv(4096)


def get(port: int, token: str) -> None:
    with trusting().wrap_socket(socket.create_connection(("127.0.0.1", port), 20)) as client:
        client.sendall(
            f"GET /query?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("service", "act"), [("wss", subscribe), ("https", get)], ids=["wss", "https"])
async def test_a_disconnected_client_leaves_no_memory(harness, uncollected, service, act):
    token = await harness.member()
    await eventually(lambda: gc.collect() >= 0 and left() == [], "the end of what the token was asked for with")
    await asyncio.to_thread(act, urlsplit(harness.gateway.endpoints[service]).port, token)
    await eventually(lambda: left() == [], "nothing that is left")
