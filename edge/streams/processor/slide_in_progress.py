"""A slide that takes several turns, seen from outside."""

from __future__ import annotations


class SlideInProgress(Exception):
    """A slide is in progress, and the action has to wait for its end. Nothing has changed."""
