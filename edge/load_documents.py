"""Download of the documents of LOAD, which is off by default (`engine.allow_load`).

A client that may LOAD makes the gateway send requests. Without a check, it could reach services of the gateway's host
and network that it cannot reach itself (server-side request forgery). So each connection, also after a redirect, goes
to an address that was checked: a name can resolve to another address later (DNS rebinding). Proxy settings of the
environment do not apply, because a proxy would resolve the name again.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyoxigraph as ox

from edge.protocol.errors import TooLarge, UpdateFailed
from edge.protocol.parsed_quads import bounded, document_fault
from edge.protocol.trust import trusting

if TYPE_CHECKING:
    import ssl

    import httpx

TIMEOUT = 10.0
"""Seconds for which the server may send nothing."""

LONGEST = 120.0
"""Seconds for the whole download, so that slow servers do not occupy the loader threads."""

MAX_DOCUMENT = 50 * 1024 * 1024
"""Maximum bytes of a document."""

Permits = Callable[[str, int, ipaddress.IPv4Address | ipaddress.IPv6Address], bool]
"""Whether a document may be loaded from a host and port at an address."""

_ACCEPT: Final = "application/n-quads, application/n-triples, text/turtle, application/trig, application/rdf+xml;q=0.8"
_MOST_REDIRECTS: Final = 10
_MOST_ADDRESSES: Final = 4
"""Addresses of a host that are tried."""
_PORTS: Final = {"http": 80, "https": 443}


class _Document(NamedTuple):
    content: bytes
    kind: str
    """Media type; empty: not declared."""
    base: str
    """IRI after the redirects."""


class _Deadline:
    """End of a download. A connection on which bytes still arrive, however slowly, is shut down at that time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = clock() + LONGEST
        self._lock = threading.Lock()
        self._expired = False
        self._connection: socket.socket | None = None

    def left(self) -> float:
        """Return the seconds left, more than 0. Raises `UpdateFailed`."""
        left = self._end - self._clock()
        if self._expired or left <= 0:
            raise UpdateFailed(
                f"the document was not received within {LONGEST:g} seconds; use a faster server, or send its content"
            )
        return left

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the connections that httpx makes. Raises `OSError`."""
        if event == "connection.connect_tcp.complete":
            # A descriptor of its own: that of httpx moves into the TLS socket, and its number may be used again.
            self._watch(info["return_value"].get_extra_info("socket").dup())

    def _watch(self, connection: socket.socket | None) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = connection
            self._shut_down()

    def expire(self) -> None:
        """Shut the connection down, and all later ones. Called by the timer's thread."""
        with self._lock:
            self._expired = True
            self._shut_down()

    def _shut_down(self) -> None:
        if self._expired and self._connection is not None:
            with suppress(OSError):  # the server has closed it
                # Closing it would not wake the thread that waits for bytes.
                self._connection.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Close the descriptor of the connection."""
        self._watch(None)


@contextmanager
def _deadline(clock: Callable[[], float]) -> Iterator[_Deadline]:
    deadline = _Deadline(clock)
    timer = threading.Timer(LONGEST, deadline.expire)
    timer.name, timer.daemon = "load-deadline", True
    timer.start()
    try:
        yield deadline
    finally:
        timer.cancel()
        deadline.release()


def load_document(
    iri: str, permits: Permits | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[ox.Quad]:
    """Yield the quads of an RDF document on the Web.

    `permits`: None permits all addresses. `clock`: returns seconds, for `LONGEST`. Raises `UpdateFailed`, `TooLarge`.
    """
    with _deadline(clock) as deadline:
        document = _fetched(iri, permits, deadline)
    kind = document.kind
    media = ox.RdfFormat.from_media_type(kind) or ox.RdfFormat.from_extension(iri.rpartition(".")[2])
    if media is None:
        raise UpdateFailed(f"{kind or 'a document without content type'} is not an RDF format that is known here")
    # The IRI after redirects is the base (RFC 3986, section 5.1.3).
    return _parse(document.content, media, document.base)


def _fetched(iri: str, permits: Permits | None, deadline: _Deadline) -> _Document:
    """Download a document, also behind redirects. Raises `UpdateFailed`, `TooLarge`."""
    import httpx  # late: few gateways need it

    try:
        tls = trusting(None)
        url = httpx.URL(iri)
        for _ in range(_MOST_REDIRECTS + 1):
            with _opened(url, permits, tls, deadline) as response:
                if response.has_redirect_location:
                    url = url.join(response.headers["location"])
                    continue
                response.raise_for_status()
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                return _Document(_read(response, deadline), kind, str(url))
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        deadline.left()  # the connection may have ended because of the deadline
        raise UpdateFailed(f"the document could not be fetched: {error}") from None
    raise UpdateFailed(f"the document is behind more than {_MOST_REDIRECTS} redirects; use its own IRI")


@contextmanager
def _opened(
    url: httpx.URL, permits: Permits | None, tls: ssl.SSLContext, deadline: _Deadline
) -> Iterator[httpx.Response]:
    """Request a URL from the first of its addresses that accepts a connection.

    Raises `UpdateFailed`, `HTTPError`, `OSError`.
    """
    import httpx

    if url.scheme not in _PORTS or not url.host:
        raise UpdateFailed("only http and https documents can be loaded")
    deadline.left()
    headers = {"Accept": _ACCEPT, "Accept-Encoding": "identity", "Host": url.netloc.decode("ascii")}
    extensions: dict[str, Any] = {"trace": deadline.trace}
    if url.scheme == "https":
        extensions["sni_hostname"] = url.raw_host.decode("ascii")
    addresses = _addresses(url, permits)
    for number, address in enumerate(addresses, 1):
        timeout = min(TIMEOUT, deadline.left())
        try:
            to = url.copy_with(host=address)
            with (
                httpx.Client(timeout=timeout, verify=tls, trust_env=False) as client,
                client.stream("GET", to, headers=headers, extensions=extensions) as response,
            ):
                yield response
                return
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if number == len(addresses):
                raise


def _addresses(url: httpx.URL, permits: Permits | None) -> Sequence[str]:
    """Return the permitted addresses of the host of a URL. Raises `UpdateFailed`."""
    port = url.port or _PORTS[url.scheme]
    try:
        found = socket.getaddrinfo(url.raw_host.decode("ascii"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UpdateFailed(f"the document could not be fetched: {url.host} has no address: {error}") from None
    addresses = list(dict.fromkeys(str(address[4][0]).partition("%")[0] for address in found))
    if permits is not None:
        host = url.host.rstrip(".")
        addresses = [each for each in addresses if permits(host, port, ipaddress.ip_address(each))]
    if not addresses:
        raise UpdateFailed(
            f"documents may not be loaded from {url.host}: it has no public address. Add it to streams.callback_hosts"
        )
    return addresses[:_MOST_ADDRESSES]


def _read(response: httpx.Response, deadline: _Deadline) -> bytes:
    coding = response.headers.get("content-encoding", "")
    if any(each.strip().lower() not in ("", "identity") for each in coding.split(",")):
        # A small compressed document can become gigabytes, also within one chunk: codings may be nested.
        raise UpdateFailed(
            f"the document is compressed (Content-Encoding: {coding[:100]}); let its server send it without compression"
        )
    content = bytearray()
    # Bounded while it arrives: a Content-Length may be missing or wrong.
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > MAX_DOCUMENT:
            raise TooLarge(f"the document is larger than {MAX_DOCUMENT} bytes")
        deadline.left()
    deadline.left()  # without a Content-Length, the shutdown at the deadline looks like the end of the document
    return bytes(content)


def _parse(content: bytes, media: ox.RdfFormat, base: str) -> Iterator[ox.Quad]:
    try:
        if fault := document_fault(content, media, base):
            raise UpdateFailed(f"the document cannot be read: {fault}")
        yield from bounded(ox.parse(content, format=media, base_iri=base))
    except (SyntaxError, ValueError) as error:
        raise UpdateFailed(f"the document is not {media.name}: {error}") from None
