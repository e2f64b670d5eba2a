"""HTTP server of the landing zone: uvicorn, with limits against clients that are not authenticated."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spark_offload.errors import ListenRefused
from spark_offload.listen import Address

HEADER_TIME: Final = 10.0
"""Seconds within which a client must send a complete header."""
HEADER_BYTES: Final = 32 * 1024
KEEP_ALIVE: Final = 30
"""Seconds after which an idle connection is closed."""
GRACE: Final = 5
"""Seconds that running requests may take at shutdown. Received bytes of a part are kept."""
_LINGER: Final = 1.0
"""Seconds before a rejected connection is closed, so that the client can read the response."""


def serve(
    app: Starlette, address: Address, *, connections: int, tls: ssl.SSLContext | None, ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT, and call `ready` with the URL once the server listens.

    `connections` is the upper bound of open connections. Raises `ListenRefused`.
    """
    listener = _listener(address)
    config = uvicorn.Config(
        app,
        http=type("Protocol", (_Protocol,), {"most": connections}),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_context_factory=(lambda *_: tls) if tls else None,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    port = listener.getsockname()[1]
    _Server(config, lambda: ready(f"{'https' if tls else 'http'}://{address._replace(port=port)}")).run([listener])


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS context of a server, from PEM files. Raises `ListenRefused`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ListenRefused(
            f"{certificate} and {key} cannot be used ({error}): give a certificate chain and its key, both PEM"
        ) from None
    return context


class _Server(uvicorn.Server):
    """uvicorn's server with a callback at startup, and with a clean exit after a signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again: uvicorn's own version does, and would kill the program."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with limits for headers and connections, which uvicorn itself lacks."""

    most: ClassVar[int]
    _deadline: asyncio.TimerHandle | None = None
    _header: int = 0
    """Received bytes of the current header; -1 once it is complete, until the next request begins."""
    _turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        if self._header >= 0:
            self._header += len(data)
        super().data_received(data)
        # The parser buffers a header until it is complete, so bytes outside a body must be counted here.
        if self._header > HEADER_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header = 0
        self._wait()

    def on_headers_complete(self) -> None:
        self._header = -1
        self._wait_no_more()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._wait_no_more()
        self._deadline = self.loop.call_later(HEADER_TIME, self._close)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self.transport.close()

    def _turn_away(self) -> None:
        self._turned_away = True
        body = b'{"title":"Service Unavailable","status":503,"detail":"All connections (--max-connections) are in use"}'
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"retry-after: 5\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.loop.call_later(_LINGER, self._close)


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        made = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise ListenRefused(f"{address} cannot be listened on ({error}): give another address by --listen") from None
    # Nagle's algorithm would delay small responses until the client's delayed ACK. Connections inherit the option.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
