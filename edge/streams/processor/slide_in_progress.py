"""A slide that takes several turns, seen from outside."""

from __future__ import annotations


class SlideInProgress(Exception):
    """A slide is in progress, and what was to be done has to wait for its end. Nothing has changed."""
