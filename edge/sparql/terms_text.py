"""RDF terms in SPARQL notation (SPARQL 1.1 Query Language, 4.1 and 19.8), with lexical forms as written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge.sparql.errors import SparqlError
from edge.sparql.iri import character
from edge.sparql.terms import OWN_TERMS, AnyTerm, TermFactory, Vocabulary
from edge.sparql.tokens import Token, tokenize

_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")


@dataclass(frozen=True, slots=True)
class Declarations:
    """Prefixes and base IRI after a prologue, and the factory of the terms that are read with them."""

    prefixes: Mapping[str, str]
    base: str | None
    terms: TermFactory = OWN_TERMS
    vocabulary: Vocabulary = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Create the terms of the vocabulary."""
        object.__setattr__(self, "vocabulary", self.terms.vocabulary())

    def iri(self, text: str) -> AnyTerm:
        """Resolve an IRI as written: `<..>` or a prefixed name. Raises `SparqlError`."""
        try:
            if text[0] == "<":
                return self.terms.iri(self.terms.resolve(text[1:-1], self.base))
            prefix, _, local = text.partition(":")
            # In names a backslash only precedes punctuation (PN_LOCAL_ESC, rule 173), so it can be dropped.
            return self.terms.iri(self.prefixes[prefix] + local.replace("\\", ""))
        except ValueError as error:
            raise SparqlError(f"{text} is not a valid IRI: {error}") from None
        except KeyError:
            raise SparqlError(f"The prefix of {text} is not declared") from None

    def literal(self, string: str, suffix: str) -> AnyTerm:
        """Return the literal of a string and its suffix: `@language`, `^^datatype` or none. Raises `SparqlError`."""
        value = string_value(string)
        try:
            if not suffix:
                return self.terms.literal(value)
            if suffix[0] != "@":
                return self.terms.literal(value, datatype=self.iri(suffix[2:]))
            # The grammar allows longer subtags than BCP 47 (RFC 5646, section 2.1), and Oxigraph rejects them.
            if _LANGUAGE.fullmatch(suffix, 1) is None:
                raise ValueError("subtags of a language have at most 8 characters")
            return self.terms.literal(value, language=suffix[1:])
        except ValueError as error:
            raise SparqlError(f"{string}{suffix} is not a valid literal: {error}") from None

    def number(self, text: str) -> AnyTerm:
        """Return the literal of a number with or without sign: integer, decimal or, with an exponent, double."""
        known = self.vocabulary
        double = "e" in text or "E" in text
        datatype = known.double if double else known.decimal if "." in text else known.integer
        return self.terms.literal(text, datatype=datatype)

    def boolean(self, text: str) -> AnyTerm:
        """Return the literal of `true` or `false`."""
        return self.terms.literal(text, datatype=self.vocabulary.boolean)


def string_value(text: str) -> str:
    """Return the value of a string as written, in one of the four kinds of quotes. Raises `SparqlError`."""
    quotes = 3 if text[:3] in ('"""', "'''") else 1
    return _unescaped(text[quotes:-quotes])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_replacement, text) if "\\" in text else text


def _replacement(match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    try:
        return _ESCAPED[letter] if letter else character(short or long)
    except (KeyError, ValueError):
        raise SparqlError(f"Not an escape: {match.group()}") from None


def read_declarations(prologue: str, base: str | None, terms: TermFactory = OWN_TERMS) -> Declarations:
    """Read a prologue. `base`: IRI that resolves relative IRIs before a BASE declaration. Raises `SparqlError`."""
    return declarations_of(tokenize(prologue), base, terms)


def declarations_of(tokens: Sequence[Token], base: str | None, terms: TermFactory = OWN_TERMS) -> Declarations:
    """Read the tokens of a prologue. See `read_declarations`."""
    declared: dict[str, str] = {}
    index = 0
    while index < len(tokens):
        word = tokens[index].word()
        length = {"BASE": 2, "PREFIX": 3}.get(word, 0)
        if not length or index + length > len(tokens) or tokens[index + length - 1].kind != "iri":
            raise SparqlError(f"Not a declaration: {tokens[index].text}")
        written = tokens[index + length - 1]
        try:
            iri = terms.resolve(written.text[1:-1], base)
        except ValueError as error:
            raise SparqlError(f"{written.text} is not a valid IRI: {error}", written.start) from None
        if word == "BASE":
            base = iri
        else:
            declared[tokens[index + 1].text[:-1]] = iri
        index += length
    return Declarations(declared, base, terms)
