"""Permissions of a client: created by the authentication, carried by requests, enforced by the engine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal

Action = Literal["query", "update", "subscribe", "administer"]

ACTIONS: Final[frozenset[Action]] = frozenset({"query", "update", "subscribe", "administer"})

Priority = Literal["high", "normal", "low"]

PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")
"""From highest to lowest."""

DEFAULT_GRAPH: Final = ""
"""Represents the default graph among graph IRIs."""


@dataclass(frozen=True, slots=True)
class Access:
    """Permissions of one client."""

    client: str
    """Client id; empty without security."""
    actions: frozenset[Action] = ACTIONS
    read: frozenset[str] | None = None
    """Graphs that it may read; None: all."""
    write: frozenset[str] | None = None
    """Graphs that it may write; None: all."""
    publish: frozenset[str] | None = None
    """Filters of the MQTT topics that it may publish to; None: all."""
    receive: frozenset[str] | None = None
    """Filters of the MQTT topics that it may receive; None: all."""
    expires: int | None = field(default=None, compare=False)
    """Expiry of these permissions in microseconds since 1970. Not compared: a new token of a client gives the same
    permissions.
    """
    registration: str = field(default="", compare=False)
    """Identifies the registration. A client that is registered under the name of a revoked one has another value."""
    priority: Priority = field(default="normal", compare=False)
    """Priority of its requests in the queue."""

    @property
    def limited(self) -> bool:
        """Whether it has access to some graphs only."""
        return self.read is not None or self.write is not None

    def reads(self, graph: str) -> bool:
        """Return whether it may read a graph."""
        return self.read is None or graph in self.read

    @property
    def operates(self) -> bool:
        """Whether it may administer data of other clients."""
        return "administer" in self.actions

    @property
    def everything(self) -> bool:
        """Whether it may do everything: all actions, all graphs, all topics."""
        return self.actions == ACTIONS and not self.limited and self.publish is None and self.receive is None

    def narrowed(self, before: Access) -> Access:
        """Return these permissions, with the graphs restricted to those that `before` includes too."""
        return replace(self, read=_both(self.read, before.read), write=_both(self.write, before.write))


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    # None is no limit, and not an empty set: an intersection with it leaves the other set as it is.
    if one is None or other is None:
        return other if one is None else one
    return one & other


ANYBODY: Final = Access("")
"""Full permissions, used without security."""
