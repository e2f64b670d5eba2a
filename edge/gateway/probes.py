"""Proofs that gates answer: asked from outside, over their own sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import cache
from typing import Final

from edge.gateway.watchdog import StandsStill

_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_PING: Final = b"\x40\x00\x00\x00"
"""An empty confirmable message, which a reset answers (RFC 7252, section 4.3)."""
_RESET: Final = 0x70


async def http_answers(host: str, port: int, tls: bool) -> None:
    """Whether something at the port answers HTTP; what it answers does not matter. Raises `StandsStill`, `OSError`."""
    reader, writer = await asyncio.open_connection(_reachable(host), port, ssl=_trusting() if tls else None)
    try:
        writer.write(_REQUEST)
        if not await reader.read(1):
            raise StandsStill("connections are closed without an answer")
    finally:
        writer.transport.abort()


async def connects(host: str, port: int, tls: bool) -> None:
    """Whether a connection to the port is taken, and closed where nothing is said on it. Raises `OSError`."""
    reader, writer = await asyncio.open_connection(_reachable(host), port, ssl=_trusting() if tls else None)
    try:
        if not tls:  # with it the handshake is the proof
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read(1)
    finally:
        writer.transport.abort()


async def coap_answers(host: str, port: int) -> None:
    """Whether something at the port answers CoAP. Raises `StandsStill`, `OSError`."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Once(answer), remote_addr=(_reachable(host), port))
    try:
        transport.sendto(_PING)
        if (await answer)[:1] != bytes([_RESET]):
            raise StandsStill("what answers is not CoAP")
    finally:
        transport.close()


class _Once(asyncio.DatagramProtocol):
    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._answer.done():
            self._answer.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not to listen on


@cache
def _trusting() -> ssl.SSLContext:
    """It is our own port; what it shows for others to trust is not ours to judge."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
