"""Slots of the receiver's connections and the deadlines of their phases, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.server import ServerState

from edge.security import certificates
from spark_offload import connection_slots, http_server
from spark_offload.connection_slots import BODY_GRACE, BODY_RATE, REQUEST_TIME, ConnectionSlots, body_wait
from spark_offload.gateways import Gateways
from spark_offload.http_server import server_config, tls_context
from spark_offload.landing_http import LandingReceiver
from spark_offload.uploads import Uploads
from tests.history.receiving import path, reported, segment
from tests.support.waiting import eventually


def test_a_new_connection_replaces_the_oldest_one_without_a_token() -> None:
    slots = ConnectionSlots[int](4)
    assert [slots.open(number) for number in range(4)] == [None] * 4
    slots.authenticated(0, "g1")
    assert slots.open(4) == 1
    slots.close(2)
    assert slots.open(5) is None
    assert slots.open(6) == 3
    assert len(slots) == 4


def test_gateways_keep_their_connections() -> None:
    slots = ConnectionSlots[int](2)
    for number, gateway in enumerate(("g1", "g2")):
        slots.open(number)
        assert slots.authenticated(number, gateway) is None
    assert slots.open(2) == 2
    assert len(slots) == 2
    slots.close(0)
    slots.close(0)
    assert slots.open(2) is None


def test_a_gateway_has_a_quarter_of_the_connections() -> None:
    """Its connection with the oldest request is closed."""
    slots = ConnectionSlots[int](12)
    for number in range(3):
        slots.open(number)
        assert slots.authenticated(number, "g1") is None
    assert slots.authenticated(0, "g1") is None
    slots.open(3)
    assert slots.authenticated(3, "g1") == 1
    slots.open(4)
    assert slots.authenticated(4, "g2") is None
    assert len(slots) == 4


def test_a_replaced_connection_is_not_counted_again() -> None:
    slots = ConnectionSlots[int](1)
    slots.open(1)
    assert slots.open(2) == 1
    assert slots.authenticated(1, "g1") is None
    assert slots.unknown() == [2]
    assert slots.authenticated(2, "g1") is None
    assert slots.authenticated(2, "g2") is None
    assert len(slots) == 1


def test_a_body_has_a_minimum_rate() -> None:
    assert body_wait(100, 0, 100) == BODY_GRACE
    assert body_wait(100, 0, 100 + BODY_GRACE) == 0
    assert body_wait(100, 100 * BODY_RATE, 150) == BODY_GRACE
    assert body_wait(100, 100 * BODY_RATE, 250) == BODY_GRACE - 50
    assert body_wait(100, 100 * BODY_RATE, 261) < 0
    assert body_wait(0, 10**9, REQUEST_TIME - 5) == 5


@asynccontextmanager
async def serving(
    folder: Path, tls: ssl.SSLContext | None = None, app: Starlette | None = None
) -> AsyncIterator[tuple[int, str]]:
    """Serve a landing zone, or another application. Yield the port and the token of the gateway g1."""
    (folder / "landing").mkdir()
    gateways = Gateways(folder / "gateways.json")
    token = gateways.add("g1")
    uploads = Uploads(folder / "landing", largest=1 << 20, most=1 << 30)
    config = server_config(app or LandingReceiver(uploads, gateways).app(), ConnectionSlots(10), tls)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    factory = config.http_protocol_class
    server = await loop.create_server(lambda: factory(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], token
    await eventually(lambda: not state.connections and not state.tasks, "the end of all connections")
    uploads.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what arrives until the server closes the connection."""
    found = bytearray()
    try:
        while part := await reader.read(1000):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)


async def ended(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("phase", "sent"),
    [
        ("UNKNOWN_TIME", b""),
        ("UNKNOWN_TIME", b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"),
        ("HEADER_TIME", b""),
        ("HEADER_TIME", b"GET /health HTTP/1.1\r\n"),
        ("KEEP_ALIVE", b"GET /v1/outboxes/g1 HTTP/1.1\r\nHost: here\r\n\r\n\n"),
        ("KEEP_ALIVE", b"GET /v1/outboxes/g1 HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer TOKEN\r\n\r\n\n"),
        (
            "REQUEST_TIME",
            b"PATCH /v1/segments/g1/0123456789abcdef/000000000001-000000000002.json HTTP/1.1\r\nHost: here\r\n"
            b"Authorization: Bearer TOKEN\r\nUpload-Offset: 0\r\nContent-Length: 9\r\n\r\n",
        ),
    ],
    ids=["silent", "without-token", "no-request", "half-header", "after-401", "after-200", "no-body"],
)
async def test_each_phase_has_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, sent: bytes
) -> None:
    """Other phases take longer than the test may."""
    for name in ("HANDSHAKE_TIME", "HEADER_TIME", "KEEP_ALIVE", "REQUEST_TIME", "UNKNOWN_TIME"):
        monkeypatch.setattr(http_server, name, 600.0)
    monkeypatch.setattr(http_server, phase, 0.1)
    async with serving(tmp_path) as (port, token):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent.replace(b"TOKEN", token.encode()))
        await rest(reader)
        await ended(writer)


@pytest.mark.parametrize("phase", ["HANDSHAKE_TIME", "UNKNOWN_TIME"])
async def test_a_silent_tls_handshake_has_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    for name in ("HANDSHAKE_TIME", "UNKNOWN_TIME"):
        monkeypatch.setattr(http_server, name, 600.0)
    monkeypatch.setattr(http_server, phase, 0.1)
    files = certificates.make(tmp_path / "tls")
    async with serving(tmp_path, tls_context(files.server, files.server_key)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await rest(reader) == b""
        await ended(writer)


async def test_a_body_that_is_too_slow_gets_status_408(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_slots, "BODY_GRACE", 0.1)
    manifest, rows = segment(1, 10)
    header = "".join(f"{key}: {value}\r\n" for key, value in reported(0, whole=rows).items())
    async with serving(tmp_path) as (port, token):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"PATCH {path(manifest)} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n{header}"
        writer.write(f"{request}Content-Length: {len(rows)}\r\n\r\n".encode() + rows[:5])
        assert (await rest(reader)).startswith(b"HTTP/1.1 408")
        await ended(writer)
    assert len((tmp_path / "landing" / ".uploads" / f"g1.{manifest.epoch}.{manifest.stem}.tsv.gz").read_bytes()) == 5


CHUNKED = b"POST /v1/outboxes/g1 HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n"


@pytest.mark.parametrize(
    "trailers", [b"x: y\r\n\r\n", b"x: " + b"y" * (40 << 10), b"x" * (40 << 10)], ids=["whole", "value", "name"]
)
async def test_trailers_end_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trailers: bytes) -> None:
    """They would be stored without a limit, also for clients without a token."""
    for name in ("HEADER_TIME", "KEEP_ALIVE", "REQUEST_TIME", "UNKNOWN_TIME"):
        monkeypatch.setattr(http_server, name, 600.0)
    async with serving(tmp_path) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405")
        writer.write(trailers)
        async with asyncio.timeout(20):
            await rest(reader)
        await ended(writer)


async def test_large_chunks_are_not_trailers(tmp_path: Path) -> None:
    manifest, rows = segment(1, 10)
    rows += b"x" * (300 << 10)
    header = "".join(f"{key}: {value}\r\n" for key, value in reported(0, whole=rows).items())
    async with serving(tmp_path) as (port, token):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"PATCH {path(manifest)} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n{header}"
        writer.write(f"{request}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rows), rows))
        assert (await rest(reader)).startswith(b"HTTP/1.1 201")
        await ended(writer)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the deadlines that connections get."""
    found: list[float] = []
    wait = http_server._Protocol._wait

    def recorded(self: http_server._Protocol, seconds: float, end: Callable[[], None] | None = None) -> None:
        found.append(seconds)
        wait(self, seconds, end)

    monkeypatch.setattr(http_server._Protocol, "_wait", recorded)
    return found


async def test_a_response_that_is_read_slowly_has_the_time_of_a_request(tmp_path: Path, waits: list[float]) -> None:
    async def large(_: Request) -> Response:
        return Response(b"x" * (32 << 20))

    async with serving(tmp_path, app=Starlette(routes=[Route("/", large)])) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: len(waits) == 4, "the end of the response")
        assert waits[-1] == REQUEST_TIME
        await ended(writer)


async def test_the_body_of_a_gateway_may_arrive_after_the_response(tmp_path: Path, waits: list[float]) -> None:
    manifest, _ = segment(1, 10)
    async with serving(tmp_path) as (port, token):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"PATCH {path(manifest)} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{request}Upload-Offset: 0\r\nContent-Length: {2 << 20}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
        assert waits[-1] == REQUEST_TIME
        writer.write(b"x" * (2 << 20))
        await writer.drain()
        await eventually(lambda: waits[-1] == http_server.KEEP_ALIVE, "the end of the body")
        await ended(writer)
