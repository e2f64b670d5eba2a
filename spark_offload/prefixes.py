"""Prefixes that shorten the IRIs of observations in output."""

from __future__ import annotations

from typing import Final

from edge.outbox.observation import DCTERMS, MONITOR, OWL_TIME, QUDT, RDF, SOSA, XSD

PREFIXES: Final = {
    "rdf": RDF,
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": XSD,
    "sosa": SOSA,
    "time": OWL_TIME,
    "qudt-1-1": QUDT,
    "unit": "http://qudt.org/1.1/vocab/unit#",
    "dcterms": DCTERMS,
    "arces-monitor": MONITOR,
}
"""Namespaces by prefix."""


def short(iri: str) -> str:
    """Return an IRI in the syntax of Turtle, with a prefix if the local name needs no escapes."""
    for prefix, namespace in PREFIXES.items():
        local = iri.removeprefix(namespace)
        if local != iri and local.replace("-", "").replace("_", "").isalnum():
            return f"{prefix}:{local}"
    return f"<{iri}>"
