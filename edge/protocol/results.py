"""Bindings in the SPARQL 1.1 Query Results JSON format (https://www.w3.org/TR/sparql11-results-json/)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as _quoted

import pyoxigraph as ox

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
"""An RDF term as it occurs in a binding."""

Row = tuple[Term | None, ...]
"""One solution: for each variable of the result in order, a term, or None if it is unbound."""

_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def term_to_json(term: Term) -> str:
    """Format an RDF term as JSON of the results format, section 3.2.2."""
    if isinstance(term, ox.NamedNode):
        return f'{{"type":"uri","value":{_quoted(term.value)}}}'
    if isinstance(term, ox.Literal):
        value = _quoted(term.value)
        if term.language is not None:
            return f'{{"type":"literal","value":{value},"xml:lang":{_quoted(term.language)}}}'
        datatype = term.datatype.value
        if datatype == _XSD_STRING:
            return f'{{"type":"literal","value":{value}}}'
        return f'{{"type":"literal","value":{value},"datatype":{_quoted(datatype)}}}'
    if isinstance(term, ox.BlankNode):
        return f'{{"type":"bnode","value":{_quoted(term.value)}}}'
    parts = (term_to_json(term.subject), term_to_json(term.predicate), term_to_json(term.object))
    return '{{"type":"triple","value":{{"subject":{},"predicate":{},"object":{}}}}}'.format(*parts)


def results_to_json(variables: Sequence[str], rows: Iterable[Row]) -> str:
    """Format a complete SELECT result as JSON: `{"head":{"vars":[..]},"results":{"bindings":[..]}}`.

    Unbound variables are omitted from a binding. The text is joined from parts, because it is written for each
    notification, and a general JSON encoder over dictionaries takes about three times as long.
    """
    return whole_to_json(variables, [bindings_to_json(variables, rows)])


def bindings_to_json(variables: Sequence[str], rows: Iterable[Row]) -> str:
    """Format some bindings of a result, separated by commas."""
    names, _ = _head(tuple(variables))
    return ",".join(
        "{"
        + ",".join([f"{name}:{term_to_json(term)}" for name, term in zip(names, row, strict=True) if term is not None])
        + "}"
        for row in rows
    )


def whole_to_json(variables: Sequence[str], pieces: Iterable[str]) -> str:
    """Format a complete SELECT result as JSON from pieces of its bindings (`bindings_to_json`)."""
    _, head = _head(tuple(variables))
    return f'{head}"results":{{"bindings":[{",".join(pieces)}]}}}}'


@lru_cache(maxsize=1024)
def _head(variables: tuple[str, ...]) -> tuple[list[str], str]:
    """Return the variables as JSON strings, and the beginning of a result with these variables."""
    return [_quoted(name) for name in variables], f'{{"head":{{"vars":{json.dumps(variables)}}},'
