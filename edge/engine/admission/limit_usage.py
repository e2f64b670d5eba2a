"""How much is in use of something that a setting limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """Use of one limit."""

    setting: str
    """Name of the setting, such as `engine.max_pending_updates`."""
    used: int
    limit: int
    client: str = ""
    """Client that uses this much; empty if the limit is for all clients together."""
