"""SPARQL 1.1 Service Description (https://www.w3.org/TR/sparql11-service-description/): what the endpoint offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyoxigraph as ox

from edge.gates.http.formats import GRAPH_FORMATS
from edge.gates.http.negotiation import choose
from edge.protocol.errors import NotAcceptable

GRAPHS: Final = "SELECT DISTINCT ?graph WHERE { GRAPH ?graph {} } ORDER BY ?graph LIMIT 1000"
"""Query for the named graphs that a description lists."""
HTML: Final = "text/html"

_SD: Final = "http://www.w3.org/ns/sparql-service-description#"
_RDF_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_SEE_ALSO: Final = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#seeAlso")
_FORMATS: Final = "http://www.w3.org/ns/formats/"
_LANGUAGES: Final = ("SPARQL11Query", "SPARQL11Update")
_EXTENSIONS: Final = (
    "http://mml.arces.unibo.it/TR/sparql11-subscribe.html",
    "http://streamreasoning.org/C-SPARQL",
    "https://w3id.org/rsp/ql",
)
"""Languages beyond SPARQL 1.1: SPARQL 1.1 Subscribe, C-SPARQL and RSP-QL."""
_RESULTS: Final = (
    "SPARQL_Results_JSON",
    "SPARQL_Results_XML",
    "SPARQL_Results_CSV",
    "SPARQL_Results_TSV",
    "Turtle",
    "N-Triples",
    "JSON-LD",
    "RDF_XML",
)
"""Formats of results, by their names at http://www.w3.org/ns/formats/."""


def wanted(accept: str | None) -> str:
    """Return the media type of a description for a client: an RDF format, or `text/html` for browsers.

    Raises `NotAcceptable`.
    """
    found = choose(accept, [*GRAPH_FORMATS, HTML])
    if found is None:
        raise NotAcceptable(f"The description is available as {', '.join((*GRAPH_FORMATS, HTML))}")
    return found


def description(
    endpoint: str, graphs: Iterable[str], features: Iterable[str], endpoints: Mapping[str, str], media_type: str
) -> bytes:
    """Return the description in an RDF format.

    `endpoint`: URL of the SPARQL endpoint. `graphs`: named graphs that the client may read. `features`: names of
    features of the vocabulary. `endpoints`: URLs of the other gates.
    """
    triples = _triples(ox.NamedNode(endpoint), graphs, features, endpoints)
    prefixes = {"sd": _SD, "formats": _FORMATS}
    return ox.serialize(triples, format=GRAPH_FORMATS[media_type], prefixes=prefixes) or b""


def _triples(
    endpoint: ox.NamedNode, graphs: Iterable[str], features: Iterable[str], endpoints: Mapping[str, str]
) -> Iterator[ox.Triple]:
    service, dataset, default = ox.BlankNode(), ox.BlankNode(), ox.BlankNode()
    yield ox.Triple(service, _RDF_TYPE, _sd("Service"))
    yield ox.Triple(service, _sd("endpoint"), endpoint)
    for language in _LANGUAGES:
        yield ox.Triple(service, _sd("supportedLanguage"), _sd(language))
    for extension in _EXTENSIONS:
        yield ox.Triple(service, _sd("languageExtension"), ox.NamedNode(extension))
    for result in _RESULTS:
        yield ox.Triple(service, _sd("resultFormat"), ox.NamedNode(_FORMATS + result))
    for feature in features:
        yield ox.Triple(service, _sd("feature"), _sd(feature))
    for url in sorted(set(endpoints.values())):
        yield ox.Triple(service, _SEE_ALSO, ox.NamedNode(url))
    yield ox.Triple(service, _sd("defaultDataset"), dataset)
    yield ox.Triple(dataset, _RDF_TYPE, _sd("Dataset"))
    yield ox.Triple(dataset, _sd("defaultGraph"), default)
    yield ox.Triple(default, _RDF_TYPE, _sd("Graph"))
    for name in graphs:
        named, graph = ox.BlankNode(), ox.BlankNode()
        yield ox.Triple(dataset, _sd("namedGraph"), named)
        yield ox.Triple(named, _RDF_TYPE, _sd("NamedGraph"))
        yield ox.Triple(named, _sd("name"), ox.NamedNode(name))
        yield ox.Triple(named, _sd("graph"), graph)
        yield ox.Triple(graph, _RDF_TYPE, _sd("Graph"))


def _sd(name: str) -> ox.NamedNode:
    return ox.NamedNode(_SD + name)
