"""The constants in the triple patterns of a query, by which most elements cannot change its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyoxigraph as ox

from edge.sparql import algebra
from edge.sparql.query import read_query
from edge.sparql.terms import Iri
from edge.streams.language import BASE
from edge.streams.live_data import nodes_of, triples_of
from edge.streams.model import ContinuousQuery, Element, QueryForm, ReportPolicy, WindowDefinition, WindowKind

Constants = Collection[tuple[str | None, str | None, str | None]]
"""IRIs of subject, predicate and object of each triple pattern; None: another term, which can match any."""


def constants_of(query: ContinuousQuery) -> Constants | None:
    """Return the constants of a query; None: any element can change its result. Raises `ParsingFailed`."""
    if query.form is QueryForm.DESCRIBE:
        return None
    parsed = read_query(query.sparql, BASE)
    for node in nodes_of(parsed.pattern):
        # Otherwise the result can depend on whether the graph of the window exists, that is, whether it has any triple.
        if isinstance(node, algebra.GraphPattern) and not _needs_triple(node.pattern):
            return None
    return frozenset((_iri(slots[0]), _iri(slots[1]), _iri(slots[2])) for slots in triples_of(parsed))


def can_change(constants: Constants | None, windows: Iterable[WindowDefinition], elements: Iterable[Element]) -> bool:
    """Return whether elements can change the reports of a query. `windows`: those to which they come.

    In other windows than these, an element changes when the query reports, or which other elements are inside.
    """
    if constants is None or not all(map(_is_independent, windows)):
        return True
    return any(_matches(constants, triple) for element in elements for triple in element.triples)


def _is_independent(window: WindowDefinition) -> bool:
    is_timed = window.kind in (WindowKind.TIME, WindowKind.LANDMARK)
    return is_timed and window.report in (ReportPolicy.CLOSE, ReportPolicy.PERIODIC)


def _matches(constants: Constants, triple: ox.Triple) -> bool:
    terms = [term.value if isinstance(term, ox.NamedNode) else "" for term in triple]
    return any(
        all(constant is None or constant == term for constant, term in zip(each, terms, strict=True))
        for each in constants
    )


def _needs_triple(node: object) -> bool:
    """Return whether a pattern has no solution without a triple of its graph."""
    if isinstance(node, algebra.Filter):
        return _needs_triple(node.pattern)
    if isinstance(node, algebra.Join):
        return any(map(_needs_triple, node.parts))
    return isinstance(node, algebra.Triple)


def _iri(slot: object) -> str | None:
    return slot.value if isinstance(slot, Iri) else None
