"""One request to a callback URL, or to the target of notifications, over asyncio.

`edge.http_client` blocks its thread, and limits only each wait for data. Here the whole request has a deadline, and the
connection goes to an address that was checked, so that a name cannot resolve to another one in between. Redirects are
not followed, and each request has a connection of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, TypeAlias

import httptools

from edge.streams.callback_hosts import CallbackHosts, CallbackTarget, literal
from edge.streams.observer import CallbackAnswer

LONGEST_ANSWER: Final = 64 * 1024
"""Bytes of an answer that are read, headers included."""
LONGEST_DOCUMENT: Final = 256 * 1024
"""Bytes of a document that is read, with the headers of its answer."""
_BODY_WAIT: Final = 1.0
"""Seconds to wait for the body after the headers. Only the status matters; reading spares the server a reset."""
_MAX_ADDRESSES: Final = 4
"""Addresses of a name that are tried."""
_READ: Final = 16 * 1024

_SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]
Addresses: TypeAlias = Sequence[tuple[socket.AddressFamily, _SocketAddress]]


class CallbackUnanswered(Exception):
    """No valid answer came. The text is the reason."""


class Deadlines(NamedTuple):
    """Limits of a request in seconds."""

    connect: float = 5.0
    """For the connection and its TLS handshake, over all addresses of the name."""
    answer: float = 15.0
    """From the connection to the end of the answer's headers, the transfer of the report included."""


class Document(NamedTuple):
    """Answer to a GET request."""

    answer: CallbackAnswer
    links: tuple[str, ...]
    """Values of the headers `Link`."""
    content_type: str
    """Media type in lower case, without parameters; empty if the answer has none."""
    is_coded: bool
    """Whether the body has a content coding, such as gzip."""
    body: bytes = b""


class CallbackClient:
    """Sends reports. Used in the thread of the event loop."""

    def __init__(
        self,
        hosts: CallbackHosts,
        tls: Callable[[], ssl.SSLContext],
        resolver: Executor,
        deadlines: Deadlines,
    ) -> None:
        """`tls` returns the context for https. `resolver`: threads for name resolution, which blocks."""
        self._hosts = hosts
        self._tls = tls
        self._resolver = resolver
        self._deadlines = deadlines

    async def post(self, target: CallbackTarget, headers: Mapping[str, str], body: bytes) -> CallbackAnswer:
        """Send one report. Raises `CallbackUnanswered`."""
        parsed = _ParsedAnswer(LONGEST_ANSWER)
        async with self._sent("POST", target, {**headers, "Content-Length": str(len(body))}, body) as reader:
            await self._read_head(reader, parsed)
            # The answer counts from here on, whatever happens to its body.
            with suppress(OSError, httptools.HttpParserError):
                async with asyncio.timeout(_BODY_WAIT):
                    await _read(reader, parsed, lambda: parsed.is_complete)
        return parsed.answer

    async def get(
        self, target: CallbackTarget, headers: Mapping[str, str], wants_body: Callable[[Document], bool]
    ) -> Document:
        """Read a document. `wants_body` gets it without the body, which is read only if it is wanted.

        Raises `CallbackUnanswered`.
        """
        parsed = _ParsedAnswer(LONGEST_ANSWER)
        async with self._sent("GET", target, headers) as reader:
            await self._read_head(reader, parsed)
            coded = any(each.strip().lower() != "identity" for each in parsed.values("content-encoding"))
            media_type = next(iter(parsed.values("content-type")), "").partition(";")[0].strip().lower()
            found = Document(parsed.answer, tuple(parsed.values("link")), media_type, coded)
            if not wants_body(found):
                return found
            parsed.most = LONGEST_DOCUMENT
            return found._replace(body=await self._body(reader, parsed))

    @asynccontextmanager
    async def _sent(
        self, method: str, target: CallbackTarget, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[asyncio.StreamReader]:
        """Send a request. Yields the reader of the answer. Raises `CallbackUnanswered`."""
        addresses = self._allowed(target, await self._resolve(target))
        try:
            reader, writer = await self._connect(target, addresses)
        except TimeoutError:
            raise CallbackUnanswered(f"no connection within {self._deadlines.connect:g} s") from None
        try:
            writer.write(_head(method, target, headers) + body)
            yield reader
        finally:
            # Aborted, because a peer that does not read must not delay the end of the connection.
            writer.transport.abort()

    async def _resolve(self, target: CallbackTarget) -> Addresses:
        numeric = literal(target.host)
        if numeric is not None:
            return _lookup(str(numeric), target.port)
        loop = asyncio.get_running_loop()
        try:
            # Without a deadline: the thread would go on, and its slot must not be taken by another request meanwhile.
            # The resolver has deadlines of its own.
            return await loop.run_in_executor(self._resolver, _lookup, target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise CallbackUnanswered(f"the name {target.host} cannot be resolved: {_reason(error)}") from None

    def _allowed(self, target: CallbackTarget, addresses: Addresses) -> Addresses:
        allowed = [
            (family, address)
            for family, address in addresses
            if self._hosts.permits(target.host, target.port, ipaddress.ip_address(address[0].partition("%")[0]))
        ]
        if not allowed:
            raise CallbackUnanswered(
                f"{target.host} has an address to which reports may not be sent: add it to streams.callback_hosts"
            )
        return allowed[:_MAX_ADDRESSES]

    async def _connect(
        self, target: CallbackTarget, addresses: Addresses
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the first address that accepts one. Raises `CallbackUnanswered`, `TimeoutError`."""
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        end = loop.time() + self._deadlines.connect
        for tried, (family, address) in enumerate(addresses):
            # The time left is divided: an address that drops packets leaves time for the next one.
            share = (end - loop.time()) / (len(addresses) - tried)
            try:
                async with asyncio.timeout(share):
                    return await self._open(target, family, address)
            except (OSError, ssl.CertificateError) as error:  # a TimeoutError is an OSError
                failure = error
        if isinstance(failure, TimeoutError):
            raise failure
        raise CallbackUnanswered(f"{target.authority} cannot be reached: {_reason(failure)}") from None

    async def _open(
        self, target: CallbackTarget, family: socket.AddressFamily, address: _SocketAddress
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure = target.scheme == "https"
        tls = self._tls() if secure else None
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, address)
        except BaseException:
            connection.close()
            raise
        # From here on the transport closes it. Closing it here too could hit another socket with the same number.
        return await asyncio.open_connection(sock=connection, ssl=tls, server_hostname=target.host if secure else None)

    async def _read_head(self, reader: asyncio.StreamReader, parsed: _ParsedAnswer) -> None:
        """Read an answer until its headers have come. Raises `CallbackUnanswered`."""
        try:
            async with asyncio.timeout(self._deadlines.answer):
                await _read(reader, parsed, lambda: parsed.has_headers)
        except TimeoutError:
            raise CallbackUnanswered(f"no answer within {self._deadlines.answer:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            if not parsed.has_headers:  # the rest of the answer may be damaged
                raise CallbackUnanswered(f"no valid answer: {_reason(error)}") from None
        if not parsed.has_headers:
            long = parsed.is_too_long
            raise CallbackUnanswered(
                "the headers of the answer are too long" if long else "the connection ended without answer"
            )

    async def _body(self, reader: asyncio.StreamReader, parsed: _ParsedAnswer) -> bytes:
        """Read the rest of an answer, and return its whole body. Raises `CallbackUnanswered`."""
        try:
            async with asyncio.timeout(self._deadlines.answer):
                await _read(reader, parsed, lambda: parsed.is_complete)
        except TimeoutError:
            raise CallbackUnanswered(f"no complete answer within {self._deadlines.answer:g} s") from None
        except (OSError, httptools.HttpParserError) as error:
            raise CallbackUnanswered(f"no valid answer: {_reason(error)}") from None
        if parsed.is_complete or (parsed.ends_with_connection and not parsed.is_too_long):
            return bytes(parsed.body)
        if parsed.is_too_long:
            raise CallbackUnanswered(f"the answer has more than {LONGEST_DOCUMENT:,} bytes")
        raise CallbackUnanswered("the connection ended before the end of the answer")


class _ParsedAnswer:
    """Callbacks of the parser, which has the names of its methods."""

    def __init__(self, most: int) -> None:
        """`most`: bytes of the answer that are read."""
        self.most = most
        self.status = 0
        self.has_headers = False
        self.is_complete = False
        self.length = 0
        self.body = bytearray()
        self._headers: list[tuple[str, str]] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse more of the answer. Raises `httptools.HttpParserError`."""
        self.length += len(data)
        self._parser.feed_data(data)

    @property
    def answer(self) -> CallbackAnswer:
        """The answer without its body."""
        return CallbackAnswer(self.status, next(iter(self.values("retry-after")), None))

    @property
    def is_too_long(self) -> bool:
        """Whether no more of it is read."""
        return self.length >= self.most

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is that of the body (RFC 9112, section 6.3)."""
        return not self.values("content-length") and not self.values("transfer-encoding")

    def values(self, name: str) -> list[str]:
        """Return the values of the headers with a name in lower case."""
        return [value for each, value in self._headers if each == name]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_headers:  # others are trailers
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        # Interim answers (1xx) precede the final one (RFC 9110, section 15.2).
        status = self._parser.get_status_code()
        if status >= 200:
            self.status, self.has_headers = status, True
        else:
            self._headers.clear()

    def on_body(self, data: bytes) -> None:
        if self.has_headers:
            self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = self.has_headers


async def _read(reader: asyncio.StreamReader, parsed: _ParsedAnswer, enough: Callable[[], bool]) -> None:
    while not enough() and not parsed.is_too_long:
        data = await reader.read(min(_READ, parsed.most - parsed.length))
        if not data:
            return
        parsed.feed(data)


def _lookup(host: str, port: int) -> list[tuple[socket.AddressFamily, _SocketAddress]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def _head(method: str, target: CallbackTarget, headers: Mapping[str, str]) -> bytes:
    fields = {"Host": target.authority, **headers, "Connection": "close"}
    lines = [f"{name}: {value}" for name, value in fields.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise CallbackUnanswered("a header of the report has a line break")
    return "\r\n".join([f"{method} {target.path} HTTP/1.1", *lines, "", ""]).encode("latin-1", "replace")


def _reason(error: Exception | None) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
