"""RDF terms in SPARQL notation, as terms of Oxigraph. The dictionary normalizes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyoxigraph as ox

from edge.protocol.syntax import reported
from edge.sparql import terms_text
from edge.sparql.terms import TermFactory
from edge.sparql.terms_text import read_declarations

_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\\]*")


def _resolve(reference: str, base: str | None) -> str:
    """Resolve an IRI as Oxigraph does. Relative ones, and escapes, are rare: its Turtle parser reads them."""
    if _ABSOLUTE.fullmatch(reference):
        return reference
    try:
        (quad,) = ox.parse(f"<x:> <x:> <{reference}> .", format=ox.RdfFormat.TURTLE, base_iri=base)
    except SyntaxError as error:
        raise ValueError(str(error)) from None
    assert isinstance(quad.object, ox.NamedNode)  # noqa: S101
    return quad.object.value


_OXIGRAPH_TERMS: Final = TermFactory(ox.NamedNode, ox.Literal, _resolve)


class OxigraphDeclarations(terms_text.Declarations):
    """Prefixes and base IRI after a prologue."""

    __slots__ = ()

    @reported
    def iri(self, text: str) -> ox.NamedNode:
        """Resolve an IRI as written: `<..>` or a prefixed name. Raises `ParsingFailed`."""
        node: ox.NamedNode = terms_text.Declarations.iri(self, text)
        return node


@dataclass(frozen=True, slots=True)
class Names:
    """Declarations of a request: its prologue (PREFIX and BASE declarations) and the base IRI before it."""

    prologue: str
    base: str | None

    def declared(self) -> OxigraphDeclarations:
        """Return the parsed declarations. Raises `ParsingFailed`."""
        return _declarations(self.prologue, self.base)


@lru_cache(maxsize=256)
@reported
def _declarations(prologue: str, base: str | None) -> OxigraphDeclarations:
    declared = read_declarations(prologue, base, _OXIGRAPH_TERMS)
    return OxigraphDeclarations(declared.prefixes, declared.base, _OXIGRAPH_TERMS)
