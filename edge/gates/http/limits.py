"""Limits of HTTP connections that uvicorn lacks: header size, header time, number of connections."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from edge.compat.asyncio_transports import Unlink
from edge.compat.uvicorn import HookedProtocol
from edge.gates.http.boundary import ABORT
from edge.gates.origins import wrong_hosts
from edge.gates.settings import HttpGateSettings
from edge.listener import Listener, is_local
from edge.protocol.errors import EdgeError, HeaderTooLarge, InvalidRequest, RequestTimeout, TooManyRequests

_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 429: b"Too Many Requests"}
_MAX_HEADERS = 200
"""Maximum number of header fields; browsers and proxies send some dozens."""
_LINGER = 1.0
"""Seconds for a refused client to read the response; its further data is dropped."""
_DEFAULT_PHRASE = b"Request Header Fields Too Large"


class _LimitedProtocol(HookedProtocol):
    """uvicorn's HTTP/1.1 protocol with the configured limits, and errors in the protocol's form."""

    settings: ClassVar[HttpGateSettings]
    listener: ClassVar[Listener]

    _refusal: EdgeError | None = None
    _header_bytes = 0
    _in_header = True
    _deadline: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None
    _complete = False
    """Whether a whole request has arrived."""
    _peer: Any = None
    """Address of the client, in the form of its family."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self._unlink = Unlink(transport)
        self._peer = transport.get_extra_info("peername")
        self.listener.set_abort(self._peer, transport.abort)
        if self._all_in_use():
            self._refuse(self._too_many())
        elif self._has_too_many():
            self._refuse(
                TooManyRequests(
                    f"This address has {self.settings.max_connections_of_one} connections, which is the most it may "
                    "have (http.max_connections_of_one); close some"
                )
            )
        else:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        super().connection_lost(exc)
        self._unlink()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if self._in_header:
            # May count some bytes of a body that arrive with the header; the check below runs only while the header is
            # incomplete.
            self._header_bytes += len(data)
        super().data_received(data)
        # The parser buffers a long header internally, so the received bytes are counted too.
        if self._in_header and self._header_bytes > self.settings.max_header:
            self._refuse(self._too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_header = True
        self._header_bytes = 0
        self._start_deadline()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) > _MAX_HEADERS:
            raise ValueError  # stops the parser: parsed fields take much more memory than their bytes
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_header = False
        self._stop_deadline()
        self._mark_known()
        # The header is complete, so its exact size counts, not that of the received data.
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.settings.max_header or len(self.headers) > _MAX_HEADERS:
            self._refuse(self._too_large())
            raise ValueError  # stops the parser
        hosts = [value.decode("latin-1") for name, value in self.headers if name == b"host"]
        wrong = wrong_hosts(hosts, needed=self.parser.get_http_version() == "1.1")
        if wrong is not None:
            self._refuse(wrong)
            raise ValueError
        # Other connections may have sent their first request since this one was accepted.
        if not self._complete and self._all_in_use():
            self._refuse(self._too_many())
            raise ValueError
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._complete:
            self._complete = True
            self._mark_known()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._send_refusal()

    def request_started(self, cycle: RequestResponseCycle) -> None:
        self._answering = cycle
        cast("dict[str, Any]", cycle.scope)[ABORT] = self.transport.abort

    def send_400_response(self, msg: str) -> None:
        if self._in_header and len(self.headers or ()) > _MAX_HEADERS:
            self._refuse(self._too_large())
            return
        self._refuse(InvalidRequest(f"This is not HTTP/1.1: {msg}"))

    def _mark_known(self) -> None:
        """Tell the listener what has arrived. Raises `ValueError`, which stops the parser, if it was replaced."""
        if not self.listener.mark_known(self._peer, complete=self._complete):
            self.transport.abort()
            raise ValueError

    def _all_in_use(self) -> bool:
        """Whether as many connections as may be open have sent a request. The listener limits all others."""
        return self.listener.complete >= self.settings.max_connections

    def _too_many(self) -> EdgeError:
        return TooManyRequests(
            f"All {self.settings.max_connections} connections (http.max_connections) are in use; try again later"
        )

    def _has_too_many(self) -> bool:
        host = self.client[0] if self.client else ""
        # Local programs share one address, so a limit per address would hit unrelated ones.
        if is_local(host):
            return False
        clients = [other.client for other in self.connections if isinstance(other, HttpToolsProtocol)]
        return (
            sum(client is not None and client[0] == host for client in clients) > self.settings.max_connections_of_one
        )

    def _start_deadline(self) -> None:
        self._stop_deadline()
        self._deadline = self.loop.call_later(self.settings.read_timeout, self._too_slow)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._refuse(RequestTimeout(f"No complete header came within {self.settings.read_timeout:g} s"))

    def _too_large(self) -> EdgeError:
        return HeaderTooLarge(
            f"URL and header are longer than {self.settings.max_header} bytes, or more than {_MAX_HEADERS} header "
            "fields; send a long query with POST"
        )

    def _refuse(self, error: EdgeError) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = error
        # Complete requests before the invalid one are answered first.
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        elif self._answering is not None and self._answering.more_body:
            self._answering.disconnected = True
            self._answering.message_event.set()
            self._answering = None
        self._send_refusal()

    def _send_refusal(self) -> None:
        error, answering = self._refusal, self._answering
        if error is None or self.transport.is_closing():
            return
        # Called again by `on_response_complete`.
        if answering is not None and not answering.response_complete:
            return
        body = error.to_json().encode()
        phrase = _PHRASES.get(error.status_code, _DEFAULT_PHRASE)
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (error.status_code, phrase, len(body), body)
        )
        # Closing with unread data resets the connection, and the client would lose the response.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # The client gets this time to read the response.
        self.loop.call_later(_LINGER, self.transport.close)


def limited_protocol(settings: HttpGateSettings, listener: Listener) -> type[HttpToolsProtocol]:
    """Return the protocol class of one gate; uvicorn instantiates it for each connection."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"settings": settings, "listener": listener})
