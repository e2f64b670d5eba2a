"""Download of the documents of LOAD, which is off by default (`engine.allow_load`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyoxigraph as ox

from edge.protocol.errors import TooLarge, UpdateFailed
from edge.protocol.nested_terms import is_nested

TIMEOUT = 10.0
"""Seconds for which the server may send nothing."""

LONGEST = 120.0
"""Seconds for the whole download, so that slow servers do not occupy the loader threads."""

MAX_DOCUMENT = 50 * 1024 * 1024
"""Maximum bytes of a document."""

_ACCEPT = "application/n-quads, application/n-triples, text/turtle, application/trig, application/rdf+xml;q=0.8"


def load_document(iri: str) -> Iterator[ox.Quad]:
    """Yield the quads of an RDF document on the Web, parsed as they arrive. Raises `UpdateFailed`, `TooLarge`."""
    import httpx  # late: few gateways need it

    if not iri.startswith(("http://", "https://")):
        raise UpdateFailed("only http and https documents can be loaded")
    content = bytearray()
    deadline = time.monotonic() + LONGEST
    try:
        with httpx.stream("GET", iri, headers={"Accept": _ACCEPT}, timeout=TIMEOUT, follow_redirects=True) as response:
            response.raise_for_status()
            # Bounded while it arrives: a Content-Length may be missing or wrong.
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MAX_DOCUMENT:
                    raise TooLarge(f"the document is larger than {MAX_DOCUMENT} bytes")
                if time.monotonic() > deadline:
                    raise UpdateFailed(f"the document was not received within {LONGEST:g} seconds")
            kind = response.headers.get("content-type", "").partition(";")[0].strip()
            media = ox.RdfFormat.from_media_type(kind) or ox.RdfFormat.from_extension(iri.rpartition(".")[2])
            # After redirects (RFC 3986, section 5.1.3).
            base = str(response.url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpdateFailed(f"the document could not be fetched: {error}") from None
    if media is None:
        raise UpdateFailed(f"{kind or 'a document without content type'} is not an RDF format that is known here")
    return _parse(bytes(content), media, base)


def _parse(content: bytes, media: ox.RdfFormat, base: str) -> Iterator[ox.Quad]:
    if is_nested(content):
        raise UpdateFailed("the document has many triple terms of RDF 1.2, which the gateway does not store")
    try:
        yield from ox.parse(content, format=media, base_iri=base)
    except (SyntaxError, ValueError) as error:
        raise UpdateFailed(f"the document is not {media.name}: {error}") from None
