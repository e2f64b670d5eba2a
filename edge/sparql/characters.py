"""Rules of SPARQL 1.1 on characters (19.2, 19.7), which the parser does not check."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token

_SURROGATE: Final = re.compile(r"\\u[Dd][89A-Fa-f][0-9A-Fa-f]{2}|[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED: Final = frozenset("tbnrf\"'\\")
_SHORT: Final = len(r"\t")


def broken_characters(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find escape sequences that represent no character."""
    for token in tokens:
        if token.kind not in ("string", "iri"):
            continue
        if surrogate := _SURROGATE.search(token.text):
            remedy = "Write the character itself, or \\U and eight digits."
            problem = f"{surrogate[0]!a} is half of a character (a surrogate)"
            yield Diagnosis(token.start + surrogate.start(), problem, remedy)
        if token.kind == "string":
            yield from _escape_sequences(token)


def _escape_sequences(token: Token) -> Iterator[Diagnosis]:
    """Find escape sequences that SPARQL does not define (19.7)."""
    # All are matched from the left: in `\\x`, the second backslash belongs to the first and not to the x.
    for escape in _ESCAPE.finditer(token.text):
        if len(escape[0]) == _SHORT and escape[0][1] not in _ESCAPED:
            problem = f"{escape[0]} is not an escape sequence"
            yield Diagnosis(token.start + escape.start(), problem, "Write a backslash as two backslashes.")
            return
