"""Solutions of a query for applications, read from SPARQL 1.1 Query Results JSON (section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyoxigraph as ox

from edge.client.errors import BadAnswer
from edge.protocol.results import Term

Plain = str | int | float | bool | Decimal | datetime | date
"""A term as a Python value: IRIs, blank nodes and texts as `str`."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_INTEGERS: Final = (
    *("integer", "long", "int", "short", "byte"),
    *("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"),
    *("nonNegativeInteger", "positiveInteger", "nonPositiveInteger", "negativeInteger"),
)
_READERS: Final[dict[str, Callable[[str], Plain]]] = {
    **{_XSD + name: int for name in _INTEGERS},
    _XSD + "decimal": Decimal,
    _XSD + "double": float,
    _XSD + "float": float,
    _XSD + "boolean": lambda text: {"true": True, "1": True, "false": False, "0": False}[text],
    _XSD + "dateTime": datetime.fromisoformat,
    _XSD + "dateTimeStamp": datetime.fromisoformat,
    _XSD + "date": date.fromisoformat,
}


class Row(Mapping[str, Term]):
    """A solution: terms by variable, without unbound variables. Equal to a dictionary of the same terms.

    Hashable, for use in sets and counters.
    """

    __slots__ = ("_hash", "_terms")

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self._terms = dict(terms)
        self._hash: int | None = None

    def __getitem__(self, variable: str) -> Term:
        return self._terms[variable]

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return self._terms == other._terms
        return self._terms == other

    def __repr__(self) -> str:
        return "Row(" + ", ".join(f"{name}={term}" for name, term in self._terms.items()) + ")"

    def plain(self) -> dict[str, Plain]:
        """Return the solution as a dictionary of Python values."""
        return {name: plain(term) for name, term in self._terms.items()}

    @classmethod
    def of(cls, binding: object) -> Row:
        """Parse a binding of the results format. Raises `BadAnswer`."""
        if not isinstance(binding, Mapping):
            raise BadAnswer(f"not a binding: {binding!r:.200}")
        return cls({str(name): read_term(term) for name, term in binding.items()})


def read_term(term: Any) -> Term:  # noqa: ANN401 - JSON
    """Parse a term of the results format. Raises `BadAnswer`."""
    try:
        kind, value = term["type"], term["value"]
        if kind == "uri":
            return ox.NamedNode(value)
        if kind in ("literal", "typed-literal") and isinstance(
            value, str
        ):  # the second is of a draft of the format; some brokers still use it
            language, datatype = term.get("xml:lang"), term.get("datatype")
            if language is not None:
                way = term.get("its:dir")  # SPARQL 1.2
                return ox.Literal(value, language=language, direction=None if way is None else ox.BaseDirection(way))
            return ox.Literal(value) if datatype is None else ox.Literal(value, datatype=ox.NamedNode(datatype))
        if kind == "bnode":
            return ox.BlankNode(value)
        if kind == "triple":
            return ox.Triple(*(read_term(value[part]) for part in ("subject", "predicate", "object")))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise BadAnswer(f"not a term: {term!r:.200}")


def plain(term: Term) -> Plain:
    """Return the term as a Python value: the text if the literal does not match its datatype or the type is unknown."""
    if isinstance(term, ox.Triple):
        return str(term)
    if isinstance(term, ox.Literal) and (read := _READERS.get(term.datatype.value)) is not None:
        try:
            return read(term.value)
        except (ValueError, KeyError, InvalidOperation):
            return term.value
    return term.value
