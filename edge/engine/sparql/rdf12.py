"""Check for RDF 1.2 in data and templates. It is rejected, because the live graph is RDF 1.1, but Oxigraph reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.protocol.errors import ParsingFailed
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token

_MARKS: Final = {"<<": "A reified triple << >>", "<<(": "A triple term <<( )>>", "~": "A reifier ~"}


_IN_UPDATE: Final = (
    "data or templates of an update",
    "Write RDF 1.1 instead, and describe a statement by a node of its own.",
)
IN_SUBSCRIPTION: Final = (
    "the CONSTRUCT template of a subscription",
    "Send it as a query, or subscribe to a SELECT of the same variables.",
)


def refuse_rdf12(text: str, tokens: Sequence[Token], where: tuple[str, str] = _IN_UPDATE) -> None:
    """Raise `ParsingFailed` for data and templates that are not RDF 1.1.

    `text`: the whole request, for line and column. `where`: names the place in the error, and the remedy.
    """
    for index, token in enumerate(tokens):
        used = _rdf12(tokens, index)
        if used is not None:
            raise ParsingFailed(
                Diagnosis(token.start, f"{used} is RDF 1.2 and not accepted in {where[0]}", where[1]).message(text)
            )


def _rdf12(tokens: Sequence[Token], index: int) -> str | None:
    """Name the syntax of RDF 1.2 that begins at a token. None: it is SPARQL 1.1."""
    token = tokens[index]
    if token.text in _MARKS:
        return _MARKS[token.text]
    if token.word() == "VERSION":
        return "VERSION"
    # The tokens of `{|` and of `@en--ltr` are those of SPARQL 1.1, which has neither.
    if token.text == "{" and _texts(tokens, index, 1) == ["|"]:
        return "An annotation {| |}"
    if token.kind == "lang" and _texts(tokens, index, 2) == ["-", "-"]:
        return f"A direction as in {token.text}--ltr"
    return None


def _texts(tokens: Sequence[Token], index: int, count: int) -> list[str]:
    """Return the texts of the next tokens."""
    return [token.text for token in tokens[index + 1 : index + 1 + count]]
