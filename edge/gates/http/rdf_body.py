"""Graphs in request bodies, in all RDF formats that the gateway reads."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyoxigraph as ox

from edge.protocol.errors import InvalidRequest, UnsupportedMediaType
from edge.protocol.json_faults import json_fault
from edge.protocol.parsed_quads import bounded, document_fault

RDF_JSON: Final = "application/rdf+json"
FORMATS: Final = {
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "application/ld+json": ox.RdfFormat.JSON_LD,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
    "application/n-quads": ox.RdfFormat.N_QUADS,
    "application/trig": ox.RdfFormat.TRIG,
}
"""Media types of graphs, besides RDF/JSON. Turtle includes N-Triples."""

_GUESSED: Final = ("", "text/plain", "application/json")
"""Media types of several formats."""
_XML: Final = re.compile(r"\s*<(?:\?xml|!DOCTYPE|rdf:RDF)\s")
"""Beginning of an XML document with RDF. Turtle has no IRI with a space."""
_XSD_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
_REMOTE_CONTEXT: Final = "load remote contexts"
"""Part of the message of Oxigraph's JSON-LD parser for a context that is a URL."""
_Node = ox.NamedNode | ox.BlankNode


def read_graph(text: str, media_type: str, base: str) -> tuple[ox.Triple, ...]:
    """Return the triples of a graph, each of them once. Blank nodes get new names.

    Without a media type, and as `text/plain`, a text in braces or brackets is JSON, one that begins like an XML
    document is RDF/XML, another one Turtle. JSON with `@` members, or in brackets, is JSON-LD, other JSON is RDF/JSON
    (W3C Group Note "RDF 1.1 JSON Alternate Serialization").

    Raises `InvalidRequest`, `UnsupportedMediaType`, `TooLarge`.
    """
    check_format(media_type)
    if media_type in _GUESSED:
        media_type = _guessed(text, media_type)
    if media_type == RDF_JSON:
        return _read_rdf_json(text)
    form = FORMATS[media_type]
    try:
        if fault := document_fault(text.encode(), form, base):
            raise InvalidRequest(f"The body cannot be read: {fault}")
        # Each quad once: a short body can repeat one a million times.
        quads = dict.fromkeys(bounded(ox.parse(text, format=form, base_iri=base, rename_blank_nodes=True)))
    except (SyntaxError, ValueError) as error:
        if _REMOTE_CONTEXT in str(error):
            raise InvalidRequest(
                'The gateway does not fetch remote contexts: write the terms that the body uses into its "@context", '
                "or send Turtle"
            ) from None
        raise InvalidRequest(f"The body is not {form.name}: {error}") from None
    if any(quad.graph_name != ox.DefaultGraph() for quad in quads):
        raise InvalidRequest("The body has named graphs, and it must be one graph: leave out the names")
    if any(isinstance(quad.object, ox.Triple) or _has_direction(quad.object) for quad in quads):
        raise InvalidRequest("The body has terms of RDF 1.2, which the gateway does not store")
    return tuple(quad.triple for quad in quads)


def _has_direction(term: object) -> bool:
    return isinstance(term, ox.Literal) and term.direction is not None


def check_format(media_type: str) -> None:
    """Raise `UnsupportedMediaType` if `read_graph` cannot read a media type."""
    if media_type not in (*_GUESSED, RDF_JSON, *FORMATS):
        raise UnsupportedMediaType(f'Cannot take "{media_type}" here: send {", ".join((*FORMATS, RDF_JSON))}')


def _guessed(text: str, media_type: str) -> str:
    """Return the media type of a text. Turtle can begin with a bracket, too, but is not JSON then."""
    if not text.lstrip().startswith(("{", "[")) and media_type != "application/json":
        return "application/rdf+xml" if _XML.match(text) else "text/turtle"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "text/turtle" if text.lstrip().startswith("[") and media_type != "application/json" else RDF_JSON
    return RDF_JSON if isinstance(document, dict) and not _has_keywords(document) else "application/ld+json"


def _has_keywords(document: dict[str, Any]) -> bool:
    """Return whether a JSON object, or one among its values, has a member of JSON-LD, such as "@id"."""
    values = [each for value in document.values() for each in (value if isinstance(value, list) else [value])]
    objects = [document, *(each for each in values if isinstance(each, dict))]
    return any(name.startswith("@") for each in objects for name in each)


def _read_rdf_json(text: str) -> tuple[ox.Triple, ...]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    nodes: dict[str, ox.BlankNode] = {}
    found: dict[ox.Triple, None] = {}
    try:
        for subject, predicates in document.items():
            for predicate, objects in predicates.items():
                for each in objects:
                    term = _object(each, nodes)
                    found[ox.Triple(_node(subject, nodes), ox.NamedNode(predicate), term)] = None
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise InvalidRequest(
            f"The body is not RDF/JSON ({error}); its form is "
            '{"subject": {"predicate": [{"type": "uri", "value": "object"}]}}'
        ) from None
    return tuple(found)


def _node(name: str, nodes: dict[str, ox.BlankNode]) -> _Node:
    return nodes.setdefault(name, ox.BlankNode()) if name.startswith("_:") else ox.NamedNode(name)


def _object(given: dict[str, Any], nodes: dict[str, ox.BlankNode]) -> _Node | ox.Literal:
    kind, value = given["type"], given["value"]
    if not isinstance(value, str):
        raise TypeError("a value is not a string")
    if kind in ("uri", "bnode"):
        return _node(value, nodes)
    if kind != "literal":
        raise ValueError(f'the type "{str(kind)[:40]}" must be "uri", "bnode" or "literal"')
    if given.get("lang"):
        return ox.Literal(value, language=given["lang"])
    return ox.Literal(value, datatype=ox.NamedNode(given.get("datatype") or _XSD_STRING))
