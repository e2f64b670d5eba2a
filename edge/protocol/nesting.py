"""Depth of JSON and XML documents: Oxigraph's parsers read them by recursion, and thousands of levels end the process.

JSON-LD overflows the stack of a thread with fewer than 2,000 nested lists, RDF/XML with 300,000 nested elements.
"""

from __future__ import annotations

import re
from typing import Final
from xml.parsers import expat

import pyoxigraph as ox

_MOST: Final = 200
"""Levels of a document that is parsed."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
"""A bracket, or a string, also one that does not end: so a search takes linear time."""


class _TooDeepError(Exception):
    pass


def is_deep(document: bytes, form: ox.RdfFormat) -> bool:
    """Return whether a document has more levels than a parser of its format should read.

    Raises `ValueError` if XML is not well-formed: another parser might see other levels.
    """
    if form == ox.RdfFormat.JSON_LD:
        return _is_deep_json(document)
    return form == ox.RdfFormat.RDF_XML and _is_deep_xml(document)


def _is_deep_json(document: bytes) -> bool:
    if document.count(b"[") + document.count(b"{") <= _MOST:
        return False
    depth = 0
    # A loop in Python, so that other threads get the GIL between tokens.
    for token in _TOKEN.finditer(document):
        first = token[0][0]
        if first in b"[{":
            depth += 1
            if depth > _MOST:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _is_deep_xml(document: bytes) -> bool:
    if document.count(b"<") <= _MOST:
        return False
    depth = 0

    def start(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _MOST:
            raise _TooDeepError

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate(_encoding(document))
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(document, True)
    except _TooDeepError:
        return True
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    return False


def _encoding(document: bytes) -> str:
    """Return the encoding in which to look for elements, whatever the document declares: bodies are UTF-8."""
    try:
        document.decode()
    except UnicodeDecodeError:
        return "iso-8859-1"
    return "utf-8"
