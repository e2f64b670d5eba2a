"""Constants of a SPARQL text as terms, for texts that are not parsed because their template is known.

It rejects the constants that Oxigraph would reject, and returns the terms that Oxigraph would read.
"""

from __future__ import annotations

import re
from typing import Final

import pyoxigraph as ox

from edge.engine.sparql.terms_text import Names, OxigraphDeclarations
from edge.engine.store.terms import XSD, canonical
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term

CACHED: Final = 512
"""Constants cached for each prologue."""
_CACHED_LENGTH: Final = 256
"""Characters up to which a constant is cached."""

_INTEGER: Final = ox.NamedNode(XSD + "integer")
_DECIMAL: Final = ox.NamedNode(XSD + "decimal")
_LANGUAGES: Final = ("dirLangString", "langString")


class Constants(dict[str, Term]):
    """Constants as written -> terms in value form, under one prologue. A number may have a sign.

    A dictionary with `__missing__`, because a cache hit must be fast. Reading an entry raises `ParsingFailed`.
    """

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._declarations: OxigraphDeclarations = names.declared()

    def __missing__(self, text: str) -> Term:
        try:
            term = self._read(text)
        except ValueError as error:  # a surrogate, for example
            raise ParsingFailed(f"Not a constant: {text!a} ({error})") from None
        if len(text) <= _CACHED_LENGTH:
            if len(self) >= CACHED:
                self.clear()
            self[text] = term
        return term

    def _read(self, text: str) -> Term:
        if "\\" in text:
            return self._read_by_oxigraph(text)
        first = text[0]
        if first in "\"'":
            return self._literal(text, first)
        if first in "+-0123456789":
            return self._number(text)
        return self._declarations.iri(text)

    def _literal(self, text: str, quote: str) -> Term:
        string, typed, datatype = text.rpartition("^^")
        if not typed:
            string = text
        if string[-1] == quote and not string.startswith(quote * 3):
            if not typed:
                return ox.Literal(string[1:-1])
            type_ = self[datatype]
            # A language string needs a tag: Oxigraph decides about this datatype.
            if isinstance(type_, ox.NamedNode) and not type_.value.endswith(_LANGUAGES):
                return canonical(ox.Literal(string[1:-1], datatype=type_))
        return self._read_by_oxigraph(text)

    def _number(self, text: str) -> Term:
        # `isdigit` alone is true for the digits of other scripts.
        if text.isdigit() and text.isascii():
            return canonical(ox.Literal(text, datatype=_INTEGER))
        if _FRACTION.fullmatch(text):
            return canonical(ox.Literal(text, datatype=_DECIMAL))
        return self._read_by_oxigraph(text)

    def _read_by_oxigraph(self, text: str) -> Term:
        # Only for unusual spellings, because it takes a store and a whole parser.
        store = ox.Store()
        data = f"{self._names.prologue}INSERT DATA {{ <urn:x> <urn:x> {text} }}"
        try:
            store.update(data, base_iri=self._names.base)
        except SyntaxError as error:
            raise ParsingFailed(f"Not a constant: {text} ({error})") from None
        quads = list(store)
        if len(quads) != 1:
            raise ParsingFailed(f"Not a constant: {text}")
        term: Term = quads[0].object
        return term


_FRACTION: Final = re.compile(r"-?[0-9]+\.[0-9]+")
