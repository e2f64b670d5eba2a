"""RDF terms of a parsed text. Components with terms of their own pass another `TermFactory` to the parser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from edge.sparql.iri import resolve

RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
STRING: Final = XSD + "string"
LANG_STRING: Final = RDF + "langString"


@dataclass(frozen=True, slots=True)
class Iri:
    """An absolute IRI."""

    value: str

    def __str__(self) -> str:
        """Return the IRI in angle brackets."""
        return f"<{self.value}>"


_STRING: Final = Iri(STRING)
_LANG_STRING: Final = Iri(LANG_STRING)


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal with its lexical form as written, which may be invalid for its datatype."""

    value: str
    language: str | None = None
    datatype: Iri = _STRING

    def __post_init__(self) -> None:
        """Set the datatype of a string with a language."""
        if self.language is not None:
            object.__setattr__(self, "datatype", _LANG_STRING)

    def __str__(self) -> str:
        """Return the literal in N-Triples notation."""
        text = f'"{self.value.translate(_ESCAPES)}"'
        if self.language is not None:
            return f"{text}@{self.language}"
        return text if self.datatype == _STRING else f"{text}^^{self.datatype}"


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class BlankNode:
    """A blank node of a result. In a pattern it is an `algebra.Blank`."""

    value: str

    def __str__(self) -> str:
        """Return the node with its label."""
        return f"_:{self.value}"


AnyTerm: TypeAlias = Any
"""A term of a `TermFactory`. The parser only stores it, so it has no type here."""


class TermFactory(NamedTuple):
    """Constructors of terms. They may raise `ValueError` for invalid terms."""

    iri: Callable[[str], AnyTerm]
    literal: Callable[..., AnyTerm]
    """Takes the lexical form, and `language` (a string) or `datatype` (a term of `iri`) or neither."""

    resolve: Callable[[str, str | None], str]
    """Takes the text between angle brackets, with its escapes, and the base. Returns an absolute IRI."""

    def vocabulary(self) -> Vocabulary:
        """Return the terms that SPARQL abbreviates."""
        return _vocabulary(self)


class Vocabulary(NamedTuple):
    """Terms that SPARQL abbreviates: `a`, collections, and the datatypes of numbers and booleans."""

    type: AnyTerm
    first: AnyTerm
    rest: AnyTerm
    nil: AnyTerm
    integer: AnyTerm
    decimal: AnyTerm
    double: AnyTerm
    boolean: AnyTerm


@lru_cache(maxsize=8)
def _vocabulary(terms: TermFactory) -> Vocabulary:
    rdf = (terms.iri(RDF + name) for name in ("type", "first", "rest", "nil"))
    xsd = (terms.iri(XSD + name) for name in ("integer", "decimal", "double", "boolean"))
    return Vocabulary(*rdf, *xsd)


OWN_TERMS: Final = TermFactory(Iri, Literal, resolve)
