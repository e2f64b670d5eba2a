"""Serializer of terms and triple patterns for people: IRIs with declared prefixes, numbers without datatypes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyoxigraph as ox

from edge.engine.sparql.terms_text import OxigraphDeclarations
from edge.engine.store.terms import XSD
from edge.protocol.results import Term
from edge.sparql.algebra import Blank, Fresh, Parameter, Slot, Variable

_LOCAL: Final = re.compile(r"[A-Za-z0-9_][\w-]*|", re.ASCII)
_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_BARE: Final = {
    XSD + "integer": re.compile(r"-?\d+"),
    XSD + "decimal": re.compile(r"-?\d+\.\d+"),
    XSD + "boolean": re.compile(r"true|false"),
}
"""Datatypes whose literals can be written without quotes."""


class Serializer:
    """Serializes the terms of one query."""

    def __init__(self, declared: OxigraphDeclarations, constant: Callable[[Parameter], Term]) -> None:
        """`constant`: returns the value of a parameter in this query."""
        # In reverse order, the longer of two namespaces with the same beginning comes first.
        self._namespaces = sorted(((iri, prefix) for prefix, iri in declared.prefixes.items()), reverse=True)
        self._constant = constant
        self._blanks: dict[str, str] = {}

    def quad(self, slots: Sequence[Slot | None]) -> str:
        """Return a triple pattern as text. The fourth slot is its graph, None: the default graph."""
        subject, predicate, object_, graph = slots
        verb = "a" if self.resolved(predicate) == _TYPE else self.slot(predicate)
        triple = f"{self.slot(subject)} {verb} {self.slot(object_)}"
        return triple if graph is None else f"GRAPH {self.slot(graph)} {{ {triple} }}"

    def slot(self, slot: Slot | None) -> str:
        """Return a position of a pattern as text. Blank nodes without a label are numbered."""
        if isinstance(slot, Variable):
            return f"?{slot.name}"
        if isinstance(slot, Blank | Fresh):
            named = slot.label[0].isalnum()
            return f"_:{slot.label}" if named else self._blanks.setdefault(slot.label, f"_:{len(self._blanks) + 1}")
        return self.term(self.resolved(slot))  # type: ignore[arg-type]

    def resolved(self, slot: Slot | None) -> Slot | None:
        """Return the slot, with a parameter replaced by its value."""
        return self._constant(slot) if isinstance(slot, Parameter) else slot

    def term(self, term: Term) -> str:
        """Return a constant as text."""
        if isinstance(term, ox.NamedNode):
            return self._iri(term.value)
        if isinstance(term, ox.Literal) and term.language is None:
            datatype = term.datatype.value
            if datatype in _BARE and _BARE[datatype].fullmatch(term.value):
                return term.value
            if datatype != XSD + "string":
                return f"{ox.Literal(term.value)}^^{self._iri(datatype)}"
        return str(term)

    def _iri(self, iri: str) -> str:
        for namespace, prefix in self._namespaces:
            if iri.startswith(namespace) and _LOCAL.fullmatch(iri, len(namespace)):
                return f"{prefix}:{iri[len(namespace) :]}"
        return f"<{iri}>"
