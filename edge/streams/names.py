"""Names of streams and queries: short names in paths, IRIs in query texts."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from edge.protocol.errors import InvalidRequest

PREFIX: Final = "urn:edge:stream:"
"""IRI of the stream with a short name, without the name."""

_SHORT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_IRI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]{1,1990}")
_PATH: Final = "/streams/"


def stream_iri(identifier: str) -> str:
    """Return the IRI of a stream: of a short name `urn:edge:stream:NAME`; an IRI stands for itself.

    A URL with the path `/streams/ID` stands for the stream ID. Raises `InvalidRequest`.
    """
    if _SHORT.fullmatch(identifier):
        return PREFIX + identifier
    if not _IRI.fullmatch(identifier):
        raise InvalidRequest(
            f'"{identifier[:100]}" names no stream: use letters, digits, "_", "." and "-" (at most 200), or an IRI'
        )
    if identifier.startswith(("http://", "https://")):
        path = urlsplit(identifier).path
        if path.startswith(_PATH) and len(path) > len(_PATH):
            return stream_iri(unquote(path.removeprefix(_PATH)))
    return identifier


def check_name(name: str) -> None:
    """Check the name of a query: a short name or an IRI. Raises `InvalidRequest`."""
    if not _SHORT.fullmatch(name) and not _IRI.fullmatch(name):
        raise InvalidRequest(
            f'"{name[:100]}" cannot be the name of a query: use letters, digits, "_", "." and "-" (at most 200), or an '
            "IRI"
        )
