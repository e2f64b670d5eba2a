"""HTTP/1.1 client of the command line, the doctor and the outbox.

Redirects are not followed, because requests carry a token for this server only. Proxy settings of the environment do
not apply, because gateways are on the local network.

It uses `http.client` of the standard library. The import of httpx takes 13 MiB and 0.07 s more, which would more than
double the time of a short command.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from edge.protocol.trust import trusting

_PORTS: Final = {"http": 80, "https": 443}


class Response(NamedTuple):
    """A response of any status, redirects and errors included."""

    status: int
    headers: Message
    body: bytes


class NoResponse(Exception):
    """No valid response came. The text is the reason."""

    def __init__(self, cause: Exception, timeout: float) -> None:
        self.timed_out = isinstance(cause, TimeoutError)
        """Whether the server did not answer in time."""
        self.verify_message = str(getattr(cause, "verify_message", ""))
        """Why the certificate of the server is not trusted; empty: it is not the reason."""
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        super().__init__(f"no answer within {timeout:g} s" if self.timed_out else reason)


def _system_trust() -> ssl.SSLContext:
    return trusting(None)


class HttpConnection:
    """Requests to one server, one after the other, over one connection while the server keeps it open."""

    def __init__(self, url: str, timeout: float, tls: Callable[[], ssl.SSLContext] = _system_trust) -> None:
        """`url`: its scheme, host and port count. `timeout`: seconds for connecting and for each wait for data.

        `tls` returns the context for `https`, by default with the authorities that the system trusts.
        """
        self._url = url
        self._timeout = timeout
        self._tls = tls
        self._connection: HTTPConnection | None = None

    def connect(self) -> None:
        """Connect, so that a server that cannot be reached is known before a request. Raises `NoResponse`."""
        try:
            self._connection = self._connect()
            self._connection.connect()
        except (OSError, HTTPException, ValueError) as error:
            raise NoResponse(error, self._timeout) from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], most: int | None = None
    ) -> Response:
        """Send a request for `target`, a path with its query, and return the response.

        Reads at most `most` bytes of the body; None: all. Raises `NoResponse`.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request(method, target, body, dict(headers))
            response = self._connection.getresponse()
            # Read within the `try`, because a connection may also break in the body.
            return Response(response.status, response.headers, response.read(most))
        except (OSError, HTTPException, ValueError) as error:
            raise NoResponse(error, self._timeout) from error

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
        if parts.scheme == "https":
            return HTTPSConnection(host, port, timeout=self._timeout, context=self._tls())
        return HTTPConnection(host, port, timeout=self._timeout)


def request(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout: float, most: int | None = None
) -> Response:
    """Send one request over a connection of its own. Raises as `HttpConnection.send`."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise NoResponse(error, timeout) from error
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    with closing(HttpConnection(url, timeout)) as connection:
        return connection.send(method, target, body, headers, most)
