"""An advance of the windows that takes several turns, seen from outside: a slide with its reports, or corrections."""

from __future__ import annotations


class AdvanceInProgress(Exception):
    """A slide or corrections are in progress, and the action has to wait for their end. Nothing has changed."""
