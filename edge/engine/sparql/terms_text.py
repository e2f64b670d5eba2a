"""RDF terms in SPARQL notation (SPARQL 1.1 Query Language, 4.1 and 19.8).

Terms are returned as written; the dictionary normalizes them. Rare notations (relative IRIs, escapes in IRIs) are read
by Oxigraph's Turtle parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyoxigraph as ox

from edge.engine.store.terms import XSD
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize

_ABSOLUTE: Final = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]*:[^\\]*>")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_INTEGER, _DECIMAL, _DOUBLE = (ox.NamedNode(XSD + name) for name in ("integer", "decimal", "double"))


@dataclass(frozen=True, slots=True)
class Names:
    """Declarations of a request: its prologue (PREFIX and BASE declarations) and the base IRI before it."""

    prologue: str
    base: str | None

    def declared(self) -> Declarations:
        """Return the parsed declarations. Raises `ParsingFailed`."""
        return _declarations(self.prologue, self.base)


@dataclass(frozen=True, slots=True)
class Declarations:
    """Prefixes and base IRI after a prologue."""

    prefixes: Mapping[str, str]
    base: str | None

    def iri(self, text: str) -> ox.NamedNode:
        """Resolve an IRI as written: `<..>` or a prefixed name. Raises `ParsingFailed`."""
        try:
            if text[0] == "<":
                return ox.NamedNode(text[1:-1]) if _ABSOLUTE.fullmatch(text) else _by_oxigraph(text, self.base)
            prefix, _, local = text.partition(":")
            return ox.NamedNode(self.prefixes[prefix] + local.replace("\\", ""))
        except (SyntaxError, ValueError) as error:
            raise ParsingFailed(f"Not an IRI: {text} ({error})") from None
        except KeyError:
            raise ParsingFailed(f"The prefix of {text} is not declared") from None

    def literal(self, string: str, suffix: str) -> ox.Literal:
        """Return the literal of a string and its suffix: `@language`, `^^datatype` or none. Raises `ParsingFailed`."""
        value = string_value(string)
        try:
            if not suffix:
                return ox.Literal(value)
            if suffix[0] == "@":
                return ox.Literal(value, language=suffix[1:])
            return ox.Literal(value, datatype=self.iri(suffix[2:]))
        except ValueError as error:
            raise ParsingFailed(f"Not a literal: {string}{suffix} ({error})") from None


def string_value(text: str) -> str:
    """Return the value of a string as written, in one of the four kinds of quotes. Raises `ParsingFailed`."""
    quotes = 3 if text[:3] in ('"""', "'''") else 1
    value = text[quotes:-quotes]
    return _ESCAPE.sub(_unescaped, value) if "\\" in value else value


def number(text: str) -> ox.Literal:
    """Return the literal of a number with or without sign: integer, decimal or, with an exponent, double."""
    double = "e" in text or "E" in text
    return ox.Literal(text, datatype=_DOUBLE if double else _DECIMAL if "." in text else _INTEGER)


def _unescaped(match: re.Match[str]) -> str:
    short, long, character = match.groups()
    try:
        return _ESCAPED[character] if character else chr(int(short or long, 16))
    except (KeyError, ValueError):
        raise ParsingFailed(f"Not an escape: {match.group()}") from None


def _by_oxigraph(text: str, base: str | None) -> ox.NamedNode:
    (quad,) = ox.parse(f"<x:> <x:> {text} .", format=ox.RdfFormat.TURTLE, base_iri=base)
    assert isinstance(quad.object, ox.NamedNode)  # noqa: S101
    return quad.object


@lru_cache(maxsize=256)
def _declarations(prologue: str, base: str | None) -> Declarations:
    tokens = tokenize(prologue)
    declared: dict[str, str] = {}
    index = 0
    while index < len(tokens):
        word = tokens[index].word()
        length = {"BASE": 2, "PREFIX": 3}.get(word, 0)
        if not length or index + length > len(tokens) or tokens[index + length - 1].kind != "iri":
            raise ParsingFailed(f"Not a declaration: {tokens[index].text}")
        iri = Declarations(declared, base).iri(tokens[index + length - 1].text).value
        if word == "BASE":
            base = iri
        else:
            declared[tokens[index + 1].text[:-1]] = iri
        index += length
    return Declarations(declared, base)
