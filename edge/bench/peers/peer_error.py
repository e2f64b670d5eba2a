"""Failure of one side."""

from __future__ import annotations


class PeerError(Exception):
    """One side cannot be installed, started or measured. The other sides are measured all the same."""
