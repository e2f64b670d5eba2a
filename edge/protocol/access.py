"""What a client may do: made by whoever knows the clients, carried by requests, enforced by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

Action = Literal["query", "update", "subscribe", "administer"]

ACTIONS: Final[frozenset[Action]] = frozenset({"query", "update", "subscribe", "administer"})

Priority = Literal["high", "normal", "low"]

PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")
"""The one that goes first, first."""

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
    registration: str = field(default="", compare=False)
    """What is its own until it is revoked: a client of the same name that comes after it has another one."""
    priority: Priority = field(default="normal", compare=False)
    """Whose requests go before others that wait."""

    @property
    def limited(self) -> bool:
        """Whether there are graphs that it may not see or change."""
        return self.read is not None or self.write is not None

    @property
    def operates(self) -> bool:
        """Whether it may look after what belongs to others."""
        return "administer" in self.actions

    def narrowed(self, before: Access) -> Access:
        """These rights, as far as it had them before, too: of graphs no more than both."""
        return replace(self, read=_both(self.read, before.read), write=_both(self.write, before.write))


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


ANYBODY: Final = Access("")
"""Everybody, where there is no security: everything."""
