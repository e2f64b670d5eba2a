"""The HTTP server in front of a landing zone: uvicorn, with limits for strangers, until it is told to end."""

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
"""Seconds that a client has to send a header."""
HEADER_BYTES: Final = 32 * 1024
KEEP_ALIVE: Final = 30
"""Seconds that a connection may wait for the next request."""
GRACE: Final = 5
"""Seconds that open requests have when the server ends. What has come of a part is kept."""
_LINGER: Final = 1.0
"""Seconds that who is turned away has to read why."""


def serve(
    app: Starlette, address: Address, *, connections: int, tls: ssl.SSLContext | None, ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is told the URL as soon as it listens. Raises `ListenRefused`."""
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
    """What a server encrypts with. Raises `ListenRefused`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ListenRefused(
            f"{certificate} and {key} cannot be used ({error}): give a certificate chain and its key, both PEM"
        ) from None
    return context


class _Server(uvicorn.Server):
    """uvicorn's server, ended by a signal as by a normal end of the program."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises the signal again when all is done, and the program would end by it."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with an end to headers that never end, and to connections."""

    most: ClassVar[int]
    _deadline: asyncio.TimerHandle | None = None
    _header: int = 0
    """Bytes of the header that is coming; -1: it has come, and the rest is body until the next begins."""
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
        # What belongs to no body is a header; the parser keeps it to itself until it is whole.
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
    # Answers of a few bytes would else wait for acknowledgements that are delayed; connections inherit this.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
