"""RDF documents of strangers: which of them no parser should read, and how long their quads may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from edge.protocol.errors import TooLarge
from edge.protocol.json_ld_contexts import LONGEST as LONGEST_STRINGS
from edge.protocol.json_ld_contexts import context_fault
from edge.protocol.nested_terms import is_nested
from edge.protocol.nesting import is_deep
from edge.protocol.xml_entities import has_large_entities

LONGEST: Final = 50_000_000
"""Characters of all terms of a document: five times those of the largest body with the default settings."""


def document_fault(document: bytes, form: ox.RdfFormat, base: str, longest: int = LONGEST_STRINGS) -> str:
    """Return why Oxigraph should not parse a document, which could end the process or fill its memory; empty if it may.

    `base`: IRI that relative ones begin with. `longest`: characters of the strings of JSON-LD without abbreviations.
    Raises `ValueError` if the document is not well-formed XML or not UTF-8.
    """
    if is_nested(document):
        return "it has many triple terms of RDF 1.2, which the gateway does not store"
    if form == ox.RdfFormat.RDF_XML and has_large_entities(document):
        return "it declares XML entities that name others or are long: write their values instead"
    if is_deep(document, form):
        return "it has too many levels; put fewer objects, arrays or elements into each other"
    return context_fault(document.decode(), base, longest) if form == ox.RdfFormat.JSON_LD else ""


def bounded(quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
    """Yield the quads of a document. Raises `TooLarge` if their terms, without abbreviations, are too long in total.

    Also if one term is longer than the parser can read. A loop in Python, so that other threads get the GIL between
    quads.
    """
    left = LONGEST
    try:
        for quad in quads:
            left -= sum(map(_length, quad))
            if left < 0:
                raise TooLarge(
                    f"The terms have more than {LONGEST:,} characters without abbreviations; send them in parts"
                )
            yield quad
    except MemoryError as error:  # Oxigraph's parsers have a buffer of 16 MiB
        raise TooLarge("A term is longer than 16 MiB; split it, or store it elsewhere and use its IRI") from error


def _length(term: object) -> int:
    if isinstance(term, ox.Literal):
        # The datatype may be abbreviated, too. That of a plain literal is not in the document.
        return len(term.value) + len(term.datatype.value)
    if isinstance(term, ox.Triple):
        return sum(map(_length, term))
    return len(getattr(term, "value", ""))
