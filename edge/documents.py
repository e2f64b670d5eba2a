"""The documents of LOAD: RDF fetched over HTTP or HTTPS, within bounds of time and size."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Final

import pyoxigraph as ox

from edge.protocol.errors import UpdateFailed

_ACCEPT: Final = "text/turtle, application/n-triples, application/ld+json;q=0.9, application/rdf+xml;q=0.8"
_CHUNK: Final = 65_536


def load_document(document: str, *, timeout: float, limit: int) -> Iterator[ox.Quad]:
    """The triples of the document at an IRI (SPARQL 1.1 Update, section 3.1.4).

    `timeout` in seconds counts for each answer of the server, `limit` in bytes for the whole document. Raises
    `UpdateFailed` where it cannot be had or is not RDF.
    """
    content, media_type = _fetch(document, timeout, limit)
    form = ox.RdfFormat.from_media_type(media_type)
    if form is None:
        raise UpdateFailed(f"{document} is {media_type}, which is not a form of RDF; Turtle would be one")
    try:
        yield from ox.parse(content, format=form, base_iri=document)
    except (SyntaxError, ValueError) as error:
        raise UpdateFailed(f"{document} is not {form.name}: {error}") from None


def _fetch(document: str, timeout: float, limit: int) -> tuple[bytes, str]:
    if not document.startswith(("http://", "https://")):
        raise UpdateFailed(f"{document} has no address of HTTP; only http: and https: can be loaded")
    request = urllib.request.Request(document, headers={"Accept": _ACCEPT})  # noqa: S310 - the scheme is checked above
    try:
        # Opened without file: and ftp: handlers, so that no redirect leads there.
        with _opener().open(request, timeout=timeout) as response:
            content = bytearray()
            while chunk := response.read(_CHUNK):
                content += chunk
                if len(content) > limit:
                    raise UpdateFailed(f"{document} is longer than {limit} bytes (engine.load_max_bytes)")
            return bytes(content), response.headers.get_content_type()
    except urllib.error.HTTPError as error:
        error.close()
        raise UpdateFailed(f"{document} cannot be had: the server answered {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UpdateFailed(f"{document} cannot be had: {reason}") from None


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
