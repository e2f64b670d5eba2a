"""Errors of SPARQL texts. `edge.protocol.syntax` translates them to errors of the protocol."""

from __future__ import annotations


class SparqlError(Exception):
    """The text is not a SPARQL 1.1 query or update, or the parser does not understand it."""

    def __init__(self, problem: str, position: int | None = None, remedy: str = "") -> None:
        """`position`: index of a character in the text, if known."""
        super().__init__(problem)
        self.position = position
        self.remedy = remedy


class LimitOfText(SparqlError):
    """The text may be valid, but is nested too deeply or too long."""
