"""Triples of a SPARQL 1.1 Service Description (https://www.w3.org/TR/sparql11-service-description/)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyoxigraph as ox

PREFIXES: Final = {
    "sd": "http://www.w3.org/ns/sparql-service-description#",
    "formats": "http://www.w3.org/ns/formats/",
}
_RDF_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")


def service_triples(
    endpoint: str, languages: Iterable[str], results: Iterable[str], features: Iterable[str], graphs: Iterable[str]
) -> tuple[ox.BlankNode, list[ox.Triple]]:
    """Return the node of a service, and the triples that describe it.

    `endpoint`: URL of the SPARQL endpoint. `languages` and `features`: names of the vocabulary. `results`: names at
    http://www.w3.org/ns/formats/. `graphs`: IRIs of named graphs.
    """
    service = ox.BlankNode()
    return service, list(_triples(service, ox.NamedNode(endpoint), languages, results, features, graphs))


def _triples(
    service: ox.BlankNode,
    endpoint: ox.NamedNode,
    languages: Iterable[str],
    results: Iterable[str],
    features: Iterable[str],
    graphs: Iterable[str],
) -> Iterator[ox.Triple]:
    dataset, default = ox.BlankNode(), ox.BlankNode()
    yield ox.Triple(service, _RDF_TYPE, sd("Service"))
    yield ox.Triple(service, sd("endpoint"), endpoint)
    for language in languages:
        yield ox.Triple(service, sd("supportedLanguage"), sd(language))
    for result in results:
        yield ox.Triple(service, sd("resultFormat"), ox.NamedNode(PREFIXES["formats"] + result))
    for feature in features:
        yield ox.Triple(service, sd("feature"), sd(feature))
    yield ox.Triple(service, sd("defaultDataset"), dataset)
    yield ox.Triple(dataset, _RDF_TYPE, sd("Dataset"))
    yield ox.Triple(dataset, sd("defaultGraph"), default)
    yield ox.Triple(default, _RDF_TYPE, sd("Graph"))
    for name in graphs:
        named, graph = ox.BlankNode(), ox.BlankNode()
        yield ox.Triple(dataset, sd("namedGraph"), named)
        yield ox.Triple(named, _RDF_TYPE, sd("NamedGraph"))
        yield ox.Triple(named, sd("name"), ox.NamedNode(name))
        yield ox.Triple(named, sd("graph"), graph)
        yield ox.Triple(graph, _RDF_TYPE, sd("Graph"))


def sd(name: str) -> ox.NamedNode:
    """Return a term of the vocabulary."""
    return ox.NamedNode(PREFIXES["sd"] + name)
