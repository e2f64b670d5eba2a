"""Settings of the outbox. The defaults are those of the gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """Name, content and size of the outbox."""

    gateway: str = ""
    """Name of the gateway in the history; empty: a random name that is generated once."""
    graph: str = "urn:edge:history"
    """Updates that add quads to this graph store them in the history."""
    max_bytes: int = 64 * 1024 * 1024
    """Upper bound of observations that are not acknowledged, in bytes."""
    when_full: Literal["drop-oldest", "refuse"] = "drop-oldest"
    """Reaction when the outbox is full."""
