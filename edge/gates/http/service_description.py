"""SPARQL 1.1 Service Description (https://www.w3.org/TR/sparql11-service-description/): what the endpoint offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyoxigraph as ox

from edge.gates.http.formats import GRAPH_FORMATS
from edge.negotiation import choose
from edge.protocol.errors import NotAcceptable
from edge.service_description import PREFIXES, sd, service_triples

GRAPHS: Final = "SELECT DISTINCT ?graph WHERE { GRAPH ?graph {} } ORDER BY ?graph LIMIT 1000"
"""Query for the named graphs that a description lists."""
HTML: Final = "text/html"

_SEE_ALSO: Final = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#seeAlso")
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
    service, triples = service_triples(endpoint, _LANGUAGES, _RESULTS, features, graphs)
    triples += [ox.Triple(service, sd("languageExtension"), ox.NamedNode(extension)) for extension in _EXTENSIONS]
    triples += [ox.Triple(service, _SEE_ALSO, ox.NamedNode(url)) for url in sorted(set(endpoints.values()))]
    return ox.serialize(triples, format=GRAPH_FORMATS[media_type], prefixes=PREFIXES) or b""
