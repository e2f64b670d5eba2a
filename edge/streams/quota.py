"""Limits of streams, queries and observers, which clients share."""

from __future__ import annotations

from edge.engine.admission.fair_share import FairShare
from edge.protocol.errors import TooManyRequests


def check_quota(shares: FairShare, client: str, things: str, setting: str) -> None:
    """Raise `TooManyRequests` if a client may have no more of some things. `setting`: name of their limit."""
    if shares.room(client) < 1:
        raise TooManyRequests(
            f"No further {things}: the limit {setting} is reached, of which a client may have as many as it leaves for "
            "others; end others first"
        )
