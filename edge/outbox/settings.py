"""The settings of the outbox. Defaults are those of the gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """Whose it is, what goes there, and how much of it."""

    gateway: str = ""
    """The gateway's name in the history; empty: one that it makes up once."""
    graph: str = "urn:edge:history"
    """What updates add to this graph goes to the history."""
    max_bytes: int = 64 * 1024 * 1024
    """Bytes of observations that nobody has acknowledged, at the most."""
    when_full: Literal["drop-oldest", "refuse"] = "drop-oldest"
    """What then happens."""
