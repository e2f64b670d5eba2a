"""Devices as things of the W3C Web of Things: their descriptions, their values, and the directory of them."""

from edge.gates.http.things.description import SEARCH, SEARCH_FORMATS, WELL_KNOWN
from edge.gates.http.things.observing import PropertyObservers
from edge.gates.http.things.resources import ThingResources

__all__ = ["SEARCH", "SEARCH_FORMATS", "WELL_KNOWN", "PropertyObservers", "ThingResources"]
