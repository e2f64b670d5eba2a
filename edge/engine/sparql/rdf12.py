"""RDF 1.2 in data and templates, which is refused: the gateway's own graph is one of RDF 1.1. Oxigraph reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import Token

_MARKS: Final = frozenset({"<<", "<<(", "~"})


_IN_UPDATE: Final = (
    "what an update inserts or deletes; write it in RDF 1.1: what is said of a statement as a node of its own"
)
IN_SUBSCRIPTION: Final = (
    "the CONSTRUCT template of a subscription; send it as a query, or subscribe to a SELECT of what the template needs"
)


def refuse_rdf12(tokens: Sequence[Token], where: str = _IN_UPDATE) -> None:
    """Refuse data and templates that are not RDF 1.1. Raises `ParsingFailed`.

    `where`: the place that the error names, and the remedy.
    """
    for index, token in enumerate(tokens):
        if (
            token.text in _MARKS
            or token.word() == "VERSION"
            or (token.text == "{" and _texts(tokens, index, 1) == ["|"])
            or (token.kind == "lang" and _texts(tokens, index, 2) == ["-", "-"])
        ):
            raise ParsingFailed(
                "RDF 1.2 (VERSION, triple terms << >>, annotations {| |}, reifiers ~, directions as in @en--ltr) is "
                f"not taken in {where}"
            )


def _texts(tokens: Sequence[Token], index: int, count: int) -> list[str]:
    """What follows a token."""
    return [token.text for token in tokens[index + 1 : index + 1 + count]]
