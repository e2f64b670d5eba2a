"""Initial mappings from MQTT topics to observations (Listing 17): the member `extended.semantic-mappings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edge.jsap.findings import Findings
from edge.jsap.members import Members

MEMBER: Final = "semantic-mappings"


@dataclass(frozen=True, slots=True)
class SemanticMapping:
    """One topic and the observation for its values. IRIs are absolute."""

    topic: str
    observation: str
    unit: str | None = None
    location: str | None = None
    comment: str | None = None
    label: str | None = None


def semantic_mappings(
    extended: Members, namespaces: Mapping[str, str], findings: Findings
) -> tuple[SemanticMapping, ...]:
    """Return the mappings of a profile. Topics are literal, not patterns."""
    found = []
    for topic, node in extended.items(MEMBER):
        entry = Members(node, findings)
        observation = entry.iri("observation", namespaces)
        if entry.node("observation") is None:
            findings.problem(node.key_problem(f'the mapping of "{topic}" names no observation'))
        unit, location = entry.iri("unit", namespaces), entry.iri("location", namespaces)
        comment, label = entry.text("comment"), entry.text("label")
        entry.rest()
        if observation is not None:
            found.append(SemanticMapping(topic, observation, unit, location, comment, label))
    return tuple(found)
