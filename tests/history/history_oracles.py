"""Test oracles for queries: rdflib and Oxigraph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyoxigraph as ox
import rdflib

from edge.outbox import observation
from spark_offload.sparql import terms

Row = tuple[object, ...]
"""Terms as N-Triples text, or rounded; None is unbound."""


class Rdflib:
    """Oracle that uses rdflib."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines`: N-Quads."""
        self._dataset = rdflib.Dataset()
        with _literals_as_written():
            for quad in ox.parse("\n".join(lines), ox.RdfFormat.N_QUADS):
                graph = self._dataset.default_graph
                if not isinstance(quad.graph_name, ox.DefaultGraph):
                    graph = self._dataset.graph(_term(quad.graph_name))
                graph.add((_term(quad.subject), _term(quad.predicate), _term(quad.object)))

    def answer(self, text: str, form: str) -> list[Row] | None:
        """Return the solutions with columns sorted by name; one row or none for an ASK. None: rdflib gives up."""
        try:
            return self._answer(text, form)
        # rdflib warns of errors that SPARQL defines, for example YEAR of a non-date
        except (AttributeError, TypeError):
            return None

    def _answer(self, text: str, form: str) -> list[Row]:
        with _literals_as_written():
            found = self._dataset.query(text)
            if form == "ASK":
                return [()] if found.askAnswer else []
            if form == "CONSTRUCT":
                return [tuple(map(terms.written, triple)) for triple in found.graph or ()]
            names = sorted(found.vars or ())
            rows = [
                tuple(None if row.get(name) is None else terms.written(row[name]) for name in names)
                for row in found.bindings
            ]
        if "GROUP BY" in text:  # without a solution, rdflib returns a group of none
            return [row for row in rows if any(row)] if len(rows) == 1 else rows
        return rows


class Oxigraph:
    """Oracle that uses Oxigraph. Literals are in their canonical form, whatever the input was."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines`: N-Quads."""
        self._store = ox.Store()
        self._store.extend(ox.parse("\n".join(lines), ox.RdfFormat.N_QUADS))

    def answer(self, text: str, form: str) -> list[Row]:
        """Return the solutions in the form of `Rdflib`."""
        found = self._store.query(text)
        if form == "ASK":
            return [()] if found else []
        if form == "CONSTRUCT":
            return [(str(one.subject), str(one.predicate), str(one.object)) for one in found]
        names = sorted(variable.value for variable in found.variables)
        return [tuple(None if row[name] is None else str(row[name]) for name in names) for row in found]


def canonical(term: object) -> object:
    """Return a term in Oxigraph's canonical form."""
    if not isinstance(term, str):
        return term
    store = ox.Store()
    store.extend(ox.parse(f"<a:a> <a:a> {term} .", ox.RdfFormat.N_QUADS))
    return str(next(iter(store)).object)


def rounded(term: object) -> object:
    """Return a number rounded to nine digits, with its datatype; another term unchanged."""
    if isinstance(term, str) and term.startswith('"') and f"^^<{observation.XSD}" in term:
        text, _, datatype = term.rpartition("^^")
        try:
            return datatype, float(f"{float(text[1:-1]):.9g}")
        except ValueError:
            pass
    return term


def _term(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> rdflib.term.Identifier:
    if isinstance(term, ox.NamedNode):
        return rdflib.URIRef(term.value)
    if isinstance(term, ox.BlankNode):
        return rdflib.BNode(term.value)
    assert isinstance(term, ox.Literal)
    if term.language:
        return rdflib.Literal(term.value, lang=term.language)
    datatype = None if term.datatype.value == observation.STRING else rdflib.URIRef(term.datatype.value)
    return rdflib.Literal(term.value, datatype=datatype)


@contextmanager
def _literals_as_written() -> Iterator[None]:
    """Keep lexical forms: rdflib would normalize "01"^^xsd:integer to "1"^^xsd:integer."""
    known, rdflib.NORMALIZE_LITERALS = rdflib.NORMALIZE_LITERALS, False
    try:
        yield
    finally:
        rdflib.NORMALIZE_LITERALS = known
