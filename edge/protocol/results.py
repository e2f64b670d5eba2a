"""Bindings in the SPARQL 1.1 Query Results JSON format (https://www.w3.org/TR/sparql11-results-json/)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from typing import Final

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
            # A query can make a base direction; its member is that of SPARQL 1.2, as in the results of queries.
            more = "" if term.direction is None else f',"its:dir":{_quoted(term.direction.value)}'
            return f'{{"type":"literal","value":{value},"xml:lang":{_quoted(term.language)}{more}}}'
        datatype = term.datatype.value
        # In RDF 1.1 a plain literal has this datatype. The results format writes plain literals without one.
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
    notification: an encoder in C over dictionaries takes twice as long, and that of Python ten times.
    """
    parts = _format(tuple(variables))
    return parts[2] + _bindings(parts, rows) + _END


def bindings_to_json(variables: Sequence[str], rows: Iterable[Row]) -> str:
    """Format some bindings of a result, separated by commas."""
    return _bindings(_format(tuple(variables)), rows)


def whole_to_json(variables: Sequence[str], pieces: Iterable[str]) -> str:
    """Format a complete SELECT result as JSON from pieces of its bindings (`bindings_to_json`)."""
    return _format(tuple(variables))[2] + ",".join(pieces) + _END


def _bindings(parts: _Format, rows: Iterable[Row]) -> str:
    members, binding, _ = parts
    text = _term_texts.get
    bindings = []
    for row in rows:
        cells = tuple(map(text, row))
        # Unbound, or a term that is not in the cache.
        if None in cells:
            cells = tuple([cell or _term_text(term) for cell, term in zip(cells, row, strict=True)])
        if None in cells:
            bound = [member + cell for member, cell in zip(members, cells, strict=True) if cell is not None]
            bindings.append("{" + ",".join(bound) + "}")
        else:
            bindings.append(binding % cells)
    return ",".join(bindings)


_Format = tuple[list[str], str, str]
_END: Final = "]}}"


@lru_cache(maxsize=1024)
def _format(variables: tuple[str, ...]) -> _Format:
    """Return the parts of a result with these variables.

    The parts are the names of the members of a binding, a format string for a binding without unbound variables, and
    the text before the first binding.
    """
    members = [_quoted(name) + ":" for name in variables]
    binding = "{" + ",".join([member.replace("%", "%%") + "%s" for member in members]) + "}"
    return members, binding, f'{{"head":{{"vars":{json.dumps(variables)}}},"results":{{"bindings":['


_MAX_TEXTS: Final = 4096
_MAX_TEXT: Final = 300
"""Characters of the longest text in the cache. With the terms, a full cache takes at most 3 MB."""

_term_texts: dict[Term | None, str] = {}
"""Cache of `term_to_json`. Most terms of a notification were in an earlier one: the sensor, and the value that the new
one replaces. Several threads use it, so it relies only on atomic operations.
"""


def _term_text(term: Term | None) -> str | None:
    """Format a term that the cache does not have."""
    if term is None:
        return None
    text = term_to_json(term)
    if len(text) <= _MAX_TEXT:
        if len(_term_texts) >= _MAX_TEXTS:
            _term_texts.clear()  # evicting single terms would cost more than formatting all of them again
        _term_texts[term] = text
    return text
