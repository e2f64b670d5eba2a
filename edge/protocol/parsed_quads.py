"""Quads from a parser, with a limit: abbreviations make the terms of a short document very long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

from edge.protocol.errors import TooLarge

LONGEST: Final = 50_000_000
"""Characters of all terms of a document: five times those of the largest body with the default settings."""


def bounded(quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
    """Yield the quads of a document. Raises `TooLarge` if their terms, without abbreviations, are too long in total.

    A loop in Python, so that other threads get the GIL between quads.
    """
    left = LONGEST
    for quad in quads:
        left -= sum(map(_length, quad))
        if left < 0:
            raise TooLarge(f"The terms have more than {LONGEST:,} characters without abbreviations; send them in parts")
        yield quad


def _length(term: object) -> int:
    if isinstance(term, ox.Literal):
        # The datatype may be abbreviated, too. That of a plain literal is not in the document.
        return len(term.value) + len(term.datatype.value)
    if isinstance(term, ox.Triple):
        return sum(map(_length, term))
    return len(getattr(term, "value", ""))
