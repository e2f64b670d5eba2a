"""Download of the documents of LOAD, which is off by default (`engine.allow_load`).

A client that may LOAD makes the gateway send requests. Without a check, it could reach services of the gateway's host
and network that it cannot reach itself (server-side request forgery). So each connection, also after a redirect, goes
to an address that was checked: a name can resolve to another address later (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyoxigraph as ox

from edge.protocol.errors import TooLarge, UpdateFailed
from edge.protocol.nested_terms import is_nested
from edge.protocol.xml_entities import has_large_entities

if TYPE_CHECKING:
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


def load_document(iri: str, permits: Permits | None = None) -> Iterator[ox.Quad]:
    """Yield the quads of an RDF document on the Web. `permits`: None permits all addresses.

    Raises `UpdateFailed`, `TooLarge`.
    """
    import httpx  # late: few gateways need it

    deadline = time.monotonic() + LONGEST
    try:
        url = httpx.URL(iri)
        for _ in range(_MOST_REDIRECTS + 1):
            with _opened(url, permits) as response:
                if response.has_redirect_location:
                    url = url.join(response.headers["location"])
                    continue
                response.raise_for_status()
                content = _read(response, deadline)
                kind = response.headers.get("content-type", "").partition(";")[0].strip()
                break
        else:
            raise UpdateFailed(f"the document is behind more than {_MOST_REDIRECTS} redirects; use its own IRI")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpdateFailed(f"the document could not be fetched: {error}") from None
    media = ox.RdfFormat.from_media_type(kind) or ox.RdfFormat.from_extension(iri.rpartition(".")[2])
    if media is None:
        raise UpdateFailed(f"{kind or 'a document without content type'} is not an RDF format that is known here")
    # The IRI after redirects is the base (RFC 3986, section 5.1.3).
    return _parse(content, media, str(url))


@contextmanager
def _opened(url: httpx.URL, permits: Permits | None) -> Iterator[httpx.Response]:
    """Request a URL from the first of its addresses that accepts a connection. Raises `UpdateFailed`, `HTTPError`."""
    import httpx

    if url.scheme not in _PORTS or not url.host:
        raise UpdateFailed("only http and https documents can be loaded")
    headers = {"Accept": _ACCEPT, "Host": url.netloc.decode("ascii")}
    extensions = {"sni_hostname": url.raw_host.decode("ascii")} if url.scheme == "https" else {}
    addresses = _addresses(url, permits)
    for number, address in enumerate(addresses, 1):
        try:
            to = url.copy_with(host=address)
            with (
                httpx.Client(timeout=TIMEOUT) as client,
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


def _read(response: httpx.Response, deadline: float) -> bytes:
    content = bytearray()
    # Bounded while it arrives: a Content-Length may be missing or wrong.
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_DOCUMENT:
            raise TooLarge(f"the document is larger than {MAX_DOCUMENT} bytes")
        if time.monotonic() > deadline:
            raise UpdateFailed(f"the document was not received within {LONGEST:g} seconds")
    return bytes(content)


def _parse(content: bytes, media: ox.RdfFormat, base: str) -> Iterator[ox.Quad]:
    if is_nested(content):
        raise UpdateFailed("the document has many triple terms of RDF 1.2, which the gateway does not store")
    if media == ox.RdfFormat.RDF_XML and has_large_entities(content):
        raise UpdateFailed("the document declares XML entities that name others or are long, which are not replaced")
    try:
        yield from ox.parse(content, format=media, base_iri=base)
    except (SyntaxError, ValueError) as error:
        raise UpdateFailed(f"the document is not {media.name}: {error}") from None
