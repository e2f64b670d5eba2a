"""Limits of streams, queries and observers, which clients share."""

from __future__ import annotations

from edge.engine.admission.fair_share import FairShare
from edge.protocol.errors import TooManyRequests


def check_share(shares: FairShare, client: str, what: str, setting: str) -> None:
    """Raise `TooManyRequests` if a client may have no more. `what`: of which things; `setting`: name of the limit."""
    if shares.room(client) < 1:
        raise TooManyRequests(
            f"No further {what}: the limit {setting} is reached, of which a client may have as many as it leaves for "
            "others; end others first"
        )
