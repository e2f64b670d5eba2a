"""HTTP server of `receive` and `serve --sparql`: uvicorn, with limits against clients that are not authenticated."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

import uvicorn
from starlette.applications import Starlette

from edge.compat.uvicorn import EmbeddedServer, HookedProtocol
from spark_offload.connection_slots import (
    HANDSHAKE_TIME,
    HEADER_TIME,
    KEEP_ALIVE,
    REQUEST_TIME,
    UNKNOWN_TIME,
    ConnectionSlots,
)
from spark_offload.errors import ListenRefused
from spark_offload.http_tokens import AUTHENTICATED
from spark_offload.listen import Address

HEADER_BYTES: Final = 32 * 1024
GRACE: Final = 5
"""Seconds that running requests may take at shutdown. Received bytes of a part are kept."""
_FILES: Final = 200
"""Open files apart from connections. Connections that were just replaced count for a moment, too."""
_BACKLOG: Final = 128
"""Connections that the kernel holds until the server accepts them. They have no deadline and no slot."""
_LINGER: Final = 1.0
"""Seconds before a rejected connection is closed, so that the client can read the response."""


def serve(
    app: Starlette, address: Address, *, connections: int, tls: ssl.SSLContext | None, ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT, and call `ready` with the URL once the server listens.

    `connections` is the upper bound of open connections. Raises `ListenRefused`.
    """
    bound = listener(address)
    _allow_files(connections)
    slots: ConnectionSlots[_Protocol] = ConnectionSlots(connections)
    config = server_config(app, slots, tls)
    port = bound.getsockname()[1]
    url = f"{'https' if tls else 'http'}://{address._replace(port=port)}"

    async def run() -> None:
        await _Server(config, slots, tls, lambda: ready(url)).serve([bound])

    asyncio.run(run())


def server_config(app: Starlette, slots: ConnectionSlots[_Protocol], tls: ssl.SSLContext | None) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        app,
        http=_protocol(slots, tls),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=3600,  # bytes before a request would end this timer, so that _Protocol has its own
        timeout_graceful_shutdown=GRACE,
        backlog=_BACKLOG,
    )


def _protocol(slots: ConnectionSlots[_Protocol], tls: ssl.SSLContext | None) -> type[_Protocol]:
    return type("Protocol", (_Protocol,), {"slots": slots, "tls": tls})


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


class _Server(EmbeddedServer):
    """The server with a callback at startup, and with a clean exit after a signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        slots: ConnectionSlots[_Protocol],
        tls: ssl.SSLContext | None,
        ready: Callable[[], None],
    ) -> None:
        # The protocol begins TLS itself, so that `handshake` does not apply.
        super().__init__(config, _protocol(slots, tls), backlog=_BACKLOG, handshake=HANDSHAKE_TIME)
        self._slots = slots
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down. Connections without a valid token end at once, because they could delay it."""
        for connection in self._slots.unknown():
            connection.abort()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again: uvicorn's own version does, and would kill the program."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        # Only a handler of the loop wakes it up at once.
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in numbers:
            loop.remove_signal_handler(number)


class _Protocol(HookedProtocol):
    """uvicorn's HTTP/1.1 protocol with slots for connections, and a deadline for each phase of a connection.

    uvicorn itself has neither, and does not see connections before the end of their TLS handshake. So it gets plain
    connections, and this class begins TLS. Expired connections are aborted: a peer that does not read could keep a
    connection that is closed normally.
    """

    slots: ClassVar[ConnectionSlots[_Protocol]]
    tls: ClassVar[ssl.SSLContext | None]
    _plain: asyncio.Transport
    _deadline: asyncio.TimerHandle | None = None
    _unknown: asyncio.TimerHandle | None = None
    _header: int = 0
    """Received bytes of the current header; -1 once it is complete, until the next request begins."""
    _outside: int = -1
    """Received bytes of a chunked body since the header of a chunk, or -1 while they are data or no chunk began."""
    _incomplete = False
    """Whether the body of the latest request is incomplete."""
    _early: bytearray | None = None
    """Data that arrives between the end of the TLS handshake and the start of HTTP."""
    _turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        self._plain = transport
        replaced = self.slots.open(self)
        if replaced is self and self.tls is not None:  # a response would need a handshake
            transport.abort()
            return
        if replaced is not None and replaced is not self:
            replaced.abort()
        self._unknown = self.loop.call_later(UNKNOWN_TIME, self.abort)
        if self.tls is not None:
            transport.pause_reading()
            self._early = bytearray()
            self._handshake = self.loop.create_task(self._begin_tls(transport, self.tls))
            return
        super().connection_made(transport)
        self._wait(HEADER_TIME)
        if replaced is self:
            self._turn_away()

    async def _begin_tls(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            encrypted = await self.loop.start_tls(
                transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIME
            )
        except OSError:  # also a failed handshake; asyncio has closed the connection
            encrypted = None
        early, self._early = self._early, None
        # A connection that was aborted meanwhile looks like one whose handshake succeeded.
        if encrypted is None or transport.is_closing():
            self._release()
            transport.abort()
            return
        super().connection_made(encrypted)
        self._wait(HEADER_TIME)
        if early:
            self.data_received(bytes(early))

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        if self.transport is not None:  # else the connection ended before HTTP began
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        if self._early is not None:
            self._early += data
            return
        if self._header >= 0:
            self._header += len(data)
        if self._outside >= 0:
            self._outside += len(data)
        super().data_received(data)
        # The parser buffers a header or trailer until it is complete, so bytes outside a body must be counted here.
        if self._header > HEADER_BYTES or self._outside > HEADER_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header = 0
        self._incomplete = True
        self._wait(HEADER_TIME)
        self.scope.setdefault("state", {})[AUTHENTICATED] = self.authenticated

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. A trailer (RFC 9112, section 7.1.2) ends the connection: it could be as long as the body."""
        if self._header < 0:
            self.transport.close()
            return
        super().on_header(name, value)

    def on_chunk_header(self) -> None:
        """Count bytes until data arrives: after the header of the last chunk, which has no data, they are trailers."""
        self._outside = 0

    def on_body(self, body: bytes) -> None:
        self._outside = -1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._outside = -1
        self._incomplete = False
        super().on_message_complete()
        if self.cycle.response_complete and not self.pipeline and not self.transport.is_closing():
            self._wait_for_request()

    def on_headers_complete(self) -> None:
        self._header = -1
        self._wait(REQUEST_TIME)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of one that was sent early."""
        self._wait_for_request()
        super().on_response_complete()

    def _wait_for_request(self) -> None:
        """Wait for the next request, but longer while the client reads the response, or a gateway sends its body.

        Bytes before its first line do not extend the time, although uvicorn's own timer ends with them.
        """
        sending = self._incomplete and self.slots.known(self)
        if self.pipeline or sending or self.transport.get_write_buffer_size():
            self._wait(REQUEST_TIME)
        else:
            self._wait(KEEP_ALIVE, self._end)

    def _end(self) -> None:
        """Close the connection after all data was sent, or abort it if the client does not read them."""
        self._wait(HEADER_TIME)
        self.transport.close()

    def authenticated(self, gateway: str) -> None:
        """Note that the current request has the valid token of a gateway."""
        if self._unknown is not None:
            self._unknown.cancel()
        if (oldest := self.slots.authenticated(self, gateway)) is not None:
            oldest.abort()

    def abort(self) -> None:
        """Close the connection at once, with the data that was not sent."""
        self._release()
        (self._plain if self.transport is None else self.transport).abort()

    def _release(self) -> None:
        self.slots.close(self)
        for timer in (self._deadline, self._unknown):
            if timer is not None:
                timer.cancel()

    def _wait(self, seconds: float, end: Callable[[], None] | None = None) -> None:
        """Call `end` after this time, by default `abort`, unless the next phase of the connection begins."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, end or self.abort)

    def _turn_away(self) -> None:
        self._turned_away = True
        body = b'{"title":"Service Unavailable","status":503,"detail":"All connections (--max-connections) are in use"}'
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"retry-after: 5\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.loop.call_later(_LINGER, self.transport.close)
        self._wait(HEADER_TIME)


def _allow_files(connections: int) -> None:
    """Raise the limit of open files, as far as the system allows, to that of connections and of files in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def listener(address: Address) -> socket.socket:
    """Return a socket that listens on an address. Raises `ListenRefused`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        made = socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise ListenRefused(f"{address} cannot be listened on ({error}): give another address by --listen") from None
    # Nagle's algorithm would delay small responses until the client's delayed ACK. Connections inherit the option.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
