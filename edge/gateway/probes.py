"""Probes of the gates: requests from outside, over their own sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from functools import cache
from typing import Final

from edge.gateway.watchdog import Stalled

_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_PING: Final = b"\x40\x00\x00\x00"
"""An empty confirmable message, which the server answers with a reset (RFC 7252, section 4.3)."""
_RESET: Final = 0x70


async def http_answers(host: str, port: int, tls: bool) -> None:
    """Check that a server at the port answers HTTP; any status will do. Raises `Stalled`, `OSError`."""
    reader, writer = await asyncio.open_connection(_reachable(host), port, ssl=_unverified_context() if tls else None)
    try:
        writer.write(_REQUEST)
        if not await reader.read(1):
            raise Stalled("connections are closed without an answer")
    finally:
        writer.transport.abort()


async def connects(host: str, port: int, tls: bool) -> None:
    """Check that the port accepts a connection, and closes it at end of input. Raises `OSError`."""
    reader, writer = await asyncio.open_connection(_reachable(host), port, ssl=_unverified_context() if tls else None)
    try:
        if not tls:  # with TLS the handshake is sufficient
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read(1)
    finally:
        writer.transport.abort()


async def coap_answers(host: str, port: int) -> None:
    """Check that a server at the port answers CoAP. Raises `Stalled`, `OSError`."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Once(answer), remote_addr=(_reachable(host), port))
    try:
        transport.sendto(_PING)
        if (await answer)[:1] != bytes([_RESET]):
            raise Stalled("the answer is not CoAP")
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
def _unverified_context() -> ssl.SSLContext:
    """Return a TLS context without verification: the probe connects to the gateway's own port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
