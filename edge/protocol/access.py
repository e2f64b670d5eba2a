"""What a client may do: made by whoever knows the clients, carried by requests, enforced by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Action = Literal["query", "update", "subscribe", "administer"]

ACTIONS: Final[frozenset[Action]] = frozenset({"query", "update", "subscribe", "administer"})

DEFAULT_GRAPH: Final = ""
"""Among graph IRIs: the default graph."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one client."""

    client: str
    """Its identity; empty where there is no security."""
    actions: frozenset[Action] = ACTIONS
    read: frozenset[str] | None = None
    """Graphs that it may see; None: all."""
    write: frozenset[str] | None = None
    """Graphs that it may change; None: all."""
    publish: frozenset[str] | None = None
    """Filters of the MQTT topics that it may publish to; None: all."""
    receive: frozenset[str] | None = None
    """Filters of the MQTT topics that it may hear; None: all."""
    expires: int | None = field(default=None, compare=False)
    """When these rights end, in microseconds since 1970. Another token of the same client gives the same rights."""

    @property
    def limited(self) -> bool:
        """Whether there are graphs that it may not see or change."""
        return self.read is not None or self.write is not None


ANYBODY: Final = Access("")
"""Everybody, where there is no security: everything."""
