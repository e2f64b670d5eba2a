"""Results as bytes, in the formats of the W3C recommendations of SPARQL 1.1 and RDF."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyoxigraph as ox

from edge.engine.requests import Answer
from edge.gates.result_limit import ResultLimit
from edge.negotiation import choose
from edge.protocol.errors import NotAcceptable
from edge.rdf_xml import is_element_name

_JSON = ox.QueryResultsFormat.JSON

RESULT_FORMATS = {
    "application/sparql-results+json": _JSON,
    "application/json": _JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "application/xml": ox.QueryResultsFormat.XML,
    "text/csv": ox.QueryResultsFormat.CSV,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}
"""Media types of SELECT and ASK results, the preferred one first."""

GRAPH_FORMATS = {
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "application/ld+json": ox.RdfFormat.JSON_LD,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
    "application/json": ox.RdfFormat.JSON_LD,
    "application/xml": ox.RdfFormat.RDF_XML,
}
"""Media types of CONSTRUCT and DESCRIBE results, the preferred one first."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML 1.0 cannot carry in any form (section 2.2)."""


def check_acceptable(accept: str | None) -> None:
    """Raise `NotAcceptable` if no result of any query could be given, before the query is run."""
    if choose(accept, [*RESULT_FORMATS, *GRAPH_FORMATS]) is None:
        raise _not_acceptable(accept, [*RESULT_FORMATS, *GRAPH_FORMATS])


def serialize(answer: Answer, accept: str | None, max_bytes: int, seconds: float) -> tuple[str, bytes]:
    """The media type, with charset where it has one, and the content.

    Raises `NotAcceptable`, `ResultTooLarge`, and `RequestTimeout` when it took longer than `seconds`.
    """
    formats = list(GRAPH_FORMATS if isinstance(answer, ox.QueryTriples) else RESULT_FORMATS)
    media_type = choose(accept, formats)
    if media_type is None:
        raise _not_acceptable(accept, formats)
    if isinstance(answer, ox.QueryTriples):
        content = _graph(answer, GRAPH_FORMATS[media_type], ResultLimit(max_bytes, seconds))
    else:
        output = ResultLimit(max_bytes, seconds)
        answer.serialize(output, format=RESULT_FORMATS[media_type])
        content = output.getvalue()
        if RESULT_FORMATS[media_type] == ox.QueryResultsFormat.XML:
            _check_xml(content)
    return with_charset(media_type), content


def serialize_graph(triples: Iterable[ox.Triple], media_type: str, max_bytes: int, seconds: float) -> bytes:
    """Return triples in one of `GRAPH_FORMATS`. Equal triples in equal order give equal bytes.

    Raises as `serialize`.
    """
    output = ResultLimit(max_bytes, seconds)
    if GRAPH_FORMATS[media_type] == ox.RdfFormat.RDF_XML:
        return _rdf_xml(triples, output)
    ox.serialize(triples, output, format=GRAPH_FORMATS[media_type])
    return output.getvalue()


def _graph(answer: ox.QueryTriples, wanted: ox.RdfFormat, output: ResultLimit) -> bytes:
    if wanted == ox.RdfFormat.RDF_XML:
        return _rdf_xml(answer, output)
    answer.serialize(output, format=wanted)
    return output.getvalue()


def _rdf_xml(triples: Iterable[ox.Triple], output: ResultLimit) -> bytes:
    ox.serialize(_nameable(triples), output, format=ox.RdfFormat.RDF_XML)
    content = output.getvalue()
    _check_xml(content)
    return content


def _nameable(triples: Iterable[ox.Triple]) -> Iterator[ox.Triple]:
    """The triples, if all of their predicates can be names of XML elements."""
    for triple in triples:
        if not is_element_name(triple.predicate.value):
            raise NotAcceptable(f"{triple.predicate} cannot be a predicate in RDF/XML; ask for text/turtle")
        yield triple


def _check_xml(content: bytes) -> None:
    if _NOT_XML.search(content.decode()):
        raise NotAcceptable("The results hold a control character, which XML cannot carry; ask for another format")


def choose_graph_format(accept: str | None) -> str:
    """Return the media type of a graph for a client. Raises `NotAcceptable`."""
    media_type = choose(accept, list(GRAPH_FORMATS))
    if media_type is None:
        raise _not_acceptable(accept, list(GRAPH_FORMATS))
    return media_type


def with_charset(media_type: str) -> str:
    """Return a media type as the value of `Content-Type`."""
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


def _not_acceptable(accept: str | None, formats: list[str]) -> NotAcceptable:
    offers = ", ".join(dict.fromkeys(formats))
    return NotAcceptable(f'Nothing that "{accept}" accepts can be given; ask for one of {offers}')
