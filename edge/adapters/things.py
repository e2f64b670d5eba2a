"""Descriptions of sensors, properties and places: a type and a label, which the gateway writes for people and tools."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import unquote

import pyoxigraph as ox

from edge.adapters.updates import DESCRIBE_THING, RENAME_THING
from edge.engine.requests import UpdateRequest
from edge.protocol.results import Term

SOSA: Final = "http://www.w3.org/ns/sosa/"
TYPES: Final = {
    "sensor": ox.NamedNode(SOSA + "Sensor"),
    "property": ox.NamedNode(SOSA + "ObservableProperty"),
    "location": ox.NamedNode(SOSA + "FeatureOfInterest"),
}
"""Types of the things that a reading names, by its member."""
_DIGITS: Final = 16


def describe(thing: ox.NamedNode, kind: ox.NamedNode, label: str | None = None) -> UpdateRequest:
    """Return the update that gives a thing its type and label, if it has neither. Without a label, its IRI decides."""
    return UpdateRequest(DESCRIBE_THING, bindings=_bindings(thing, kind, label or label_of(thing.value)))


def rename(thing: ox.NamedNode, kind: ox.NamedNode, label: str) -> UpdateRequest:
    """Return the update that gives a thing another label, unless a client has given it one."""
    return UpdateRequest(RENAME_THING, bindings=_bindings(thing, kind, label))


def _bindings(thing: ox.NamedNode, kind: ox.NamedNode, label: str) -> dict[str, Term]:
    digest = sha256(f"{kind.value} {label}".encode()).hexdigest()[:_DIGITS]
    return {"thing": thing, "type": kind, "label": ox.Literal(label), "digest": ox.Literal(digest)}


def label_of(iri: str) -> str:
    """Return the last part of an IRI, decoded, with blanks for underscores. In a URN, a name may have slashes."""
    name = re.split(":" if iri.startswith("urn:") else "[/#:]", iri.rstrip("/#:"))[-1]
    text = unquote(name).replace("_", " ").strip()
    return text if text and text.isprintable() else name or iri
