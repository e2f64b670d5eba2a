"""Forced bindings: their types, and the conversion of values to RDF terms (SEPA paper, section 5.3)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import pyoxigraph as ox

from edge.jsap.errors import BindingError
from edge.jsap.names import XSD, absolute, expand, shown
from edge.protocol import results

Term = ox.NamedNode | ox.Literal | ox.BlankNode
"""A term to which a variable can be bound."""

Value = str | int | float | bool | Decimal | date | results.Term | Mapping[str, Any]
"""A value from a caller: a Python value, an RDF term (no triple), or a binding object of the SPARQL JSON results."""

_NO_DIRECTION: Final = "SPARQL 1.1 knows no base directions"
_TYPES: Final[dict[type[Term], str]] = {ox.NamedNode: "uri", ox.Literal: "literal", ox.BlankNode: "bnode"}


@dataclass(frozen=True, slots=True)
class ForcedBinding:
    """Declaration of a forced binding in a profile."""

    name: str
    type: Literal["uri", "literal", "bnode"]
    datatype: str | None = None
    """IRI. None: plain, or the datatype of the value."""
    language: str | None = None
    default: Term | None = None
    """None: callers must provide a value."""

    def term(self, value: Value, namespaces: Mapping[str, str]) -> Term:
        """Convert a value to a term. Raises `BindingError` if it does not match type, datatype and language.

        A text is an IRI, absolute or with a prefix of `namespaces`, the label of a blank node, or the lexical form of a
        literal. A number, boolean or time has the declared datatype, which must be able to represent it, else the XSD
        datatype of its Python type. Terms and binding objects are used unchanged, without expansion.
        """
        try:
            if isinstance(value, Mapping):
                value = _of_json(value)
            term = value if isinstance(value, ox.NamedNode | ox.Literal | ox.BlankNode) else self._of(value, namespaces)
            self._check(term)
        except ValueError as error:
            raise BindingError(f"?{self.name}: {error}") from None
        return term

    def _of(self, value: object, namespaces: Mapping[str, str]) -> Term:
        if self.type == "literal":
            text, datatype = _lexical(value, self.datatype)
            if self.language is not None:
                return ox.Literal(text, language=self.language)
            datatype = self.datatype or datatype
            # A text is used as the lexical form that the caller chose. Only converted Python values are checked.
            if not isinstance(value, str) and not _fits(text, datatype):
                raise ValueError(f"it is declared as <{datatype}>, unlike {shown(str(value))} ({type(value).__name__})")
            return ox.Literal(text, datatype=ox.NamedNode(datatype)) if datatype else ox.Literal(text)
        if not isinstance(value, str):
            raise ValueError(f"a {self.type} is a text, not {type(value).__name__}")  # noqa: TRY004 - as all others
        if self.type == "uri":
            return ox.NamedNode(expand(value, namespaces))
        return _blank(value)

    def _check(self, term: Term) -> None:
        """Raise `ValueError` for a term that does not match the declaration, or that no request can contain."""
        if _TYPES[type(term)] != self.type:
            raise ValueError(f"it is declared as {self.type}, and {shown(str(term))} is a {_TYPES[type(term)]}")
        if not isinstance(term, ox.Literal):
            return
        if "\0" in term.value:
            raise ValueError("the value has a NUL character, which SPARQL results in XML could not hold")
        if term.direction is not None:
            raise ValueError(_NO_DIRECTION)
        if self.language is not None and (term.language or "").lower() != self.language.lower():
            raise ValueError(f"it is declared with language {self.language}, unlike {shown(str(term))}")
        if self.datatype is not None and term.datatype.value != self.datatype:
            raise ValueError(f"it is declared as <{self.datatype}>, unlike {shown(str(term))}")


def _lexical(value: object, declared: str | None) -> tuple[str, str | None]:
    """Return lexical form and datatype of a Python value (XSD 1.1 part 2). Raises `ValueError`."""
    if declared == XSD + "decimal" and isinstance(value, float) and math.isfinite(value):
        value = Decimal(repr(value))  # xsd:decimal has no exponents
    match value:
        case str():
            return _characters(value), None
        # The order matters: bool is a subclass of int, and datetime is a subclass of date.
        case bool():
            return ("true" if value else "false"), XSD + "boolean"
        case int():
            return str(value), XSD + "integer"
        case float():
            if math.isfinite(value):
                return repr(value), XSD + "double"
            return ("NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"), XSD + "double"
        case Decimal() if value.is_finite():
            return f"{value:f}", XSD + "decimal"
        case datetime():
            return value.isoformat(), XSD + "dateTime"
        case date():
            return value.isoformat(), XSD + "date"
    raise ValueError(f"{shown(str(value))} of type {type(value).__name__} cannot be written as a literal")


_NUMBER: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DAY: Final = r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"
_ZONE: Final = r"(Z|[+-][0-9]{2}:[0-9]{2})"
_TIME: Final = r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
_INTEGERS: Final = (
    *("integer", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger", "nonPositiveInteger"),
    *("negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
)
_FORMS: Final = {
    **{XSD + name: r"[+-]?[0-9]+" for name in _INTEGERS},
    XSD + "decimal": _NUMBER,
    **{XSD + name: rf"{_NUMBER}([eE][+-]?[0-9]+)?|[+-]?INF|NaN" for name in ("double", "float")},
    XSD + "boolean": r"true|false|[01]",
    XSD + "date": rf"{_DAY}{_ZONE}?",
    XSD + "dateTime": rf"{_DAY}{_TIME}{_ZONE}?",
    XSD + "dateTimeStamp": rf"{_DAY}{_TIME}{_ZONE}",
}
"""Lexical forms of Python values (XSD 1.1 part 2, sections 3.3 and 3.4), without ranges."""


def _fits(text: str, datatype: str | None) -> bool:
    """Return whether a datatype permits this lexical form, as far as it is known."""
    form = _FORMS.get(datatype or "")
    return form is None or re.fullmatch(form, text) is not None


def _of_json(given: Mapping[str, Any]) -> Term:
    """Parse a binding object (SPARQL 1.1 Query Results JSON Format, section 3.2.2). Raises `ValueError`."""
    kind, value = given.get("type"), given.get("value")
    if isinstance(value, str):
        if kind == "uri":
            return ox.NamedNode(absolute(value))
        if kind == "bnode":
            return _blank(value)
        if kind in ("literal", "typed-literal"):
            value = _characters(value)
            if "its:dir" in given:
                raise ValueError(_NO_DIRECTION)
            language, datatype = given.get("xml:lang"), given.get("datatype")
            if isinstance(language, str):
                return ox.Literal(value, language=language)
            return ox.Literal(value, datatype=ox.NamedNode(absolute(datatype))) if datatype else ox.Literal(value)
    raise ValueError(
        "the object is not a binding of SPARQL JSON results: it needs type (uri, literal, bnode) and value"
    )


def _characters(text: str) -> str:
    """Return the text. Raises `ValueError` for text that is not valid Unicode."""
    # JSON escapes can produce half of a surrogate pair, which UTF-8 cannot encode.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the value has half a surrogate pair, which is not a character")
    return text


def _blank(label: str) -> ox.BlankNode:
    try:
        return ox.BlankNode(_characters(label).removeprefix("_:"))
    except ValueError:
        raise ValueError(f"{shown(label)} is not a label of a blank node") from None


def written(term: Term, blanks: str) -> str:
    """Return a term as SPARQL text, valid wherever a term may be (SPARQL 1.1 Query, section 19.8).

    `blanks` is a prefix for labels of blank nodes, so that they differ from those of the request.
    """
    if isinstance(term, ox.NamedNode):
        return f"<{term.value}>"
    if isinstance(term, ox.BlankNode):
        return f"_:{blanks}{_ODD.sub(lambda found: f'_{ord(found[0]):x}_', term.value)}"
    text = term.value.translate(_ESCAPED)
    if "\\u" in text or "\\U" in text:
        # Section 19.2: some parsers expand \u0022 before they parse strings, so that "\\u0022" would end here.
        text = text.replace("\\u", "\\\\u0075").replace("\\U", "\\\\u0055")
    if term.language is not None:
        return f'"{text}"@{term.language}'
    datatype = term.datatype.value
    return f'"{text}"' if datatype == XSD + "string" else f'"{text}"^^<{datatype}>'


_ODD: Final = re.compile(r"[^A-Za-z0-9]")
"""Characters of labels on which parsers differ. They can be replaced, because only the identity of a label matters."""
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
