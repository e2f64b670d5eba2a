"""Query text for Oxigraph: rewrites the constructs that Oxigraph parses differently from the SPARQL grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from edge.engine.sparql.repeated_patterns import LARGE, Edit, repeated
from edge.engine.store.terms import XSD
from edge.sparql.tokens import Token

_OPERANDS: Final = frozenset({"var", "string", "number", "name", "iri", "lang", "blank"})
_BOOLEANS: Final = frozenset({"true", "false"})
_FLAT: Final = 18
"""Digits up to which Oxigraph can negate any number."""
_LONG_NEGATIVE: Final = re.compile(rf"-[0-9.]{{{_FLAT + 1}}}")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with non-overlapping edits applied."""
    pieces: list[str] = []
    position = 0
    # Sorted, because the corrections are found one kind after the other.
    for start, end, new in sorted(edits):
        pieces += (text[position:start], new)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def corrections(text: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edits that make Oxigraph read a query as SPARQL 1.1 defines it, and plan it in time."""
    if len(tokens) >= LARGE:
        yield from repeated(tokens)
    if _LONG_NEGATIVE.search(text):
        yield from _negative_numbers(tokens)
    if "+" in text:
        yield from _additions(tokens)


def _negative_numbers(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Write long negative numbers as literals (INTEGER_NEGATIVE and DECIMAL_NEGATIVE of the grammar).

    Oxigraph negates the positive number, but -9223372036854775808 has none.
    """
    for index in range(1, len(tokens)):
        sign, digits = tokens[index - 1], tokens[index]
        if digits.kind != "number" or sign.text != "-" or sign.end != digits.start or len(digits.text) <= _FLAT:
            continue
        if "e" not in digits.text.lower() and not _ends_operand(tokens, index - 2):
            kind = "decimal" if "." in digits.text else "integer"
            yield sign.start, digits.end, f'"-{digits.text}"^^<{XSD}{kind}>'


def _additions(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Write sums as differences: `a - -b` for `a + b`.

    Oxigraph swaps the operands of `+`, and then cannot add a duration to a date. For two numbers the difference gives
    the same result. Sums with a number literal stay unchanged.
    """
    within = ["query"]
    for index, token in enumerate(tokens):
        text = token.text
        if token.kind == "word":
            if within[-1] == "group" and text.upper() == "SELECT":
                within[-1] = "query"
        elif text in ("{", "["):
            within.append("group")
        elif text == "(":
            inner = "path" if within[-1] == "group" and not _is_call(tokens, index - 1) else within[-1]
            within.append("path" if inner == "path" else "expression")
        elif text in ("}", "]", ")") and len(within) > 1:
            within.pop()
        elif text == "+" and within[-1] == "expression" and _is_sum(tokens, index):
            yield token.start, token.end, " - -"


def _is_call(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a bracket after this token, in a group, contains an expression, not a path or terms."""
    token = tokens[index]
    if token.kind in ("iri", "name"):
        return tokens[index - 1].word() == "FILTER"
    return token.kind == "word" and token.text != "a" and token.text not in _BOOLEANS and token.word() != "VALUES"


def _is_sum(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a plus sign is between two operands that are not numbers, the second of which has no sign."""
    before, after = tokens[index - 1], tokens[index + 1]
    operand = after.kind in ("var", "string", "iri", "name") or after.text == "(" or after.kind == "word"
    return operand and before.kind != "number" and _ends_operand(tokens, index - 1)


def _ends_operand(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the token ends an operand, so that a sign after it is an operator."""
    if index < 0:
        return False
    token = tokens[index]
    return token.kind in _OPERANDS or token.text == ")" or (token.kind == "word" and token.text in _BOOLEANS)
