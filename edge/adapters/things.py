"""Descriptions of sensors, properties and places: a type and a label, which the gateway writes for people and tools."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final
from urllib.parse import unquote

import pyoxigraph as ox

from edge.adapters.updates import DESCRIBE_THING
from edge.engine.requests import UpdateRequest

SOSA: Final = "http://www.w3.org/ns/sosa/"
TYPES: Final = {
    "sensor": ox.NamedNode(SOSA + "Sensor"),
    "property": ox.NamedNode(SOSA + "ObservableProperty"),
    "location": ox.NamedNode(SOSA + "FeatureOfInterest"),
}
"""Types of the things that a reading names, by its member."""
_DIGITS: Final = 16


def describe(thing: ox.NamedNode, kind: ox.NamedNode) -> UpdateRequest:
    """Return the update that gives a thing its type and label, if it has neither."""
    label = label_of(thing.value)
    digest = sha256(f"{kind.value} {label}".encode()).hexdigest()[:_DIGITS]
    return UpdateRequest(
        DESCRIBE_THING,
        bindings={"thing": thing, "type": kind, "label": ox.Literal(label), "digest": ox.Literal(digest)},
    )


def label_of(iri: str) -> str:
    """Return the last part of an IRI, decoded, with blanks for underscores. In a URN, a name may have slashes."""
    name = re.split(":" if iri.startswith("urn:") else "[/#:]", iri.rstrip("/#:"))[-1]
    text = unquote(name).replace("_", " ").strip()
    return text if text and text.isprintable() else name or iri
