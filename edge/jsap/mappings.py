"""Initial mappings from MQTT topics to observations (Listing 17): the member `extended.semantic-mappings`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SemanticMapping:
    """One topic and the observation that its values belong to. IRIs are absolute."""

    topic: str
    observation: str
    unit: str | None = None
    location: str | None = None
    comment: str | None = None
    label: str | None = None
