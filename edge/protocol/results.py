"""Bindings in the SPARQL 1.1 Query Results JSON format (https://www.w3.org/TR/sparql11-results-json/)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyoxigraph as ox

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple
"""An RDF term as it appears in a binding."""

Row = tuple[Term | None, ...]
"""One solution: a term, or None for unbound, for each of the result's variables in order."""

_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"
_RDF_LANG_STRING = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"

JsonTerm = dict[str, object]


def term_to_json(term: Term) -> JsonTerm:
    """One RDF term as the JSON object of the results format, section 3.2.2."""
    if isinstance(term, ox.NamedNode):
        return {"type": "uri", "value": term.value}
    if isinstance(term, ox.BlankNode):
        return {"type": "bnode", "value": term.value}
    if isinstance(term, ox.Triple):
        return {
            "type": "triple",
            "value": {
                "subject": term_to_json(term.subject),
                "predicate": term_to_json(term.predicate),
                "object": term_to_json(term.object),
            },
        }
    if term.language is not None:
        return {"type": "literal", "value": term.value, "xml:lang": term.language}
    if term.datatype.value in (_XSD_STRING, _RDF_LANG_STRING):
        return {"type": "literal", "value": term.value}
    return {"type": "literal", "value": term.value, "datatype": term.datatype.value}


def row_to_json(variables: Sequence[str], row: Row) -> dict[str, JsonTerm]:
    """One solution as a bindings object; unbound variables are left out."""
    return {name: term_to_json(term) for name, term in zip(variables, row, strict=True) if term is not None}


def results_to_json(variables: Sequence[str], rows: Iterable[Row]) -> str:
    """A whole SELECT result as JSON text: `{"head":{"vars":[..]},"results":{"bindings":[..]}}`."""
    bindings = ",".join(json.dumps(row_to_json(variables, row), ensure_ascii=False) for row in rows)
    return f'{{"head":{{"vars":{json.dumps(list(variables))}}},"results":{{"bindings":[{bindings}]}}}}'
