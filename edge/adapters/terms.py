"""Vocabularies of observations: SOSA, QUDT 1.1, OWL-Time and the monitoring vocabulary of the SEPA paper."""

from __future__ import annotations

import pyoxigraph as ox

MONITOR = "http://mml.arces.unibo.it/monitor#"
QUDT_UNIT = "http://qudt.org/1.1/vocab/unit#"
XSD = "http://www.w3.org/2001/XMLSchema#"

DATE_TIME_STAMP = ox.NamedNode(XSD + "dateTimeStamp")

PREFIXES = """\
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt-1-1: <http://qudt.org/1.1/schema/qudt#>
PREFIX arces-monitor: <http://mml.arces.unibo.it/monitor#>
PREFIX time: <http://www.w3.org/2006/time#>
"""
"""Prologue of all SPARQL texts of the adapters (SEPA paper, Listing 18, "namespaces")."""


def quantity_iri(name: str) -> ox.NamedNode:
    """Return `arces-monitor:QuantityValue-<name>` (Listing 18, ADD_OBSERVATION); `name` must be unique."""
    return ox.NamedNode(f"{MONITOR}QuantityValue-{name}")


def instant_iri(quantity: ox.NamedNode) -> ox.NamedNode:
    """Return the instant of a quantity. Derived from the quantity's IRI, so that no lookup is needed."""
    return ox.NamedNode(f"{quantity.value}-instant")
