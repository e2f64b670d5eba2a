"""What the readings of a mapping have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from edge.mapping.jsonpath import JsonPath
from edge.mapping.rules import Condition, TimeRule
from edge.mapping.unused_keys import Reasons


@dataclass(frozen=True, slots=True)
class CommonParts:
    """The parts that the readings of a mapping have in common."""

    name: str
    """Name of the mapping with that of its pack."""
    payload: str
    names: Sequence[str]
    """Captures of the topic and of the payload."""
    many: Collection[str]
    """Those that may have several levels."""
    each: JsonPath | None
    items: tuple[str, ...]
    """Captures that differ between the items of `each`."""
    local_captures: tuple[tuple[str, JsonPath], ...]
    local_when: tuple[Condition, ...]
    times: dict[object, TimeRule] = field(default_factory=dict)
    """Readings with equal time keys share one rule, so that the evaluation parses a message's timestamp only once."""
    idle: list[Reasons] = field(default_factory=list)
    """Keys without effect of each compiled reading."""
