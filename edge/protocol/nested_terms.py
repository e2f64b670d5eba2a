"""Nested triple terms of RDF 1.2, which Oxigraph's parsers read by recursion: thousands of them end the process."""

from __future__ import annotations

import re
from typing import Final

_MOST: Final = 100
"""Triple terms of a document that are parsed; they are then refused with a message that names the term."""
_PARSE_TYPE: Final = re.compile(rb"parseType\s*=\s*(?![\"'](?:Resource|Collection|Literal)[\"'])")
"""A property element of RDF/XML with another `parseType` than those of RDF 1.1, such as a triple."""


def is_nested(document: bytes) -> bool:
    """Return whether an RDF document may have so many triple terms that no parser should read it."""
    return document.count(b"<<") > _MOST or len(_PARSE_TYPE.findall(document)) > _MOST
