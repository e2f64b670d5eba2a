"""Media types of results and of the service description, and the choice among them (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.negotiation import choose
from edge.service_description import PREFIXES, service_triples
from spark_offload.http_problems import refuse

SOLUTIONS: Final = {
    "application/sparql-results+json": "json",
    "application/json": "json",
    "application/sparql-results+xml": "xml",
    "application/xml": "xml",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
}
"""Formats of `spark_offload.results` for SELECT and ASK, the preferred one first."""
GRAPHS: Final = {
    "text/turtle": "turtle",
    "application/n-triples": "ntriples",
    "application/ld+json": "json",
    "application/rdf+xml": "xml",
    "application/json": "json",
    "application/xml": "xml",
}
"""Formats for CONSTRUCT and DESCRIBE."""
_DESCRIPTIONS: Final = {
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/n-triples": ox.RdfFormat.N_TRIPLES,
    "application/ld+json": ox.RdfFormat.JSON_LD,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
}
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


class ResultFormat(NamedTuple):
    """Format of a response."""

    media_type: str
    name: str
    """Name in `spark_offload.results`."""

    @property
    def content_type(self) -> str:
        """Return the value of `Content-Type`."""
        return f"{self.media_type}; charset=utf-8" if self.media_type.startswith("text/") else self.media_type


def result_format(form: str, accept: str | None) -> ResultFormat:
    """Return the format for a form of query and a header `Accept`. Status 406 if the client accepts none."""
    offers = SOLUTIONS if form in ("SELECT", "ASK") else GRAPHS
    media_type = _chosen(f"The result of {form}", offers, accept)
    return ResultFormat(media_type, offers[media_type])


def description(endpoint: str, accept: str | None) -> tuple[str, bytes]:
    """Return media type and content of the service description. Status 406 if the client accepts none."""
    media_type = _chosen("The description", _DESCRIPTIONS, accept)
    _, triples = service_triples(endpoint, ["SPARQL11Query"], _RESULTS, [], [])
    return media_type, ox.serialize(triples, format=_DESCRIPTIONS[media_type], prefixes=PREFIXES) or b""


def _chosen(what: str, offers: Mapping[str, object], accept: str | None) -> str:
    chosen = choose(accept, list(offers))
    return chosen or refuse(406, f"{what} is available as {', '.join(offers)}", {"Vary": "Accept"})
