"""Findings of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem", "unknown"]
"""A warning becomes a problem without action; `unknown`: the check was not possible."""

Fix = Callable[[], str]
"""Applies a safe fix and returns its description. Raises `OSError`, `EdgeError`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    state: State
    what: str
    """State with figures; without a full stop, like the other texts."""
    why: str = ""
    """Reason why it matters."""
    do: str = ""
    """Remedy."""
    fix: Fix | None = None
    """Applies the remedy, if that is safe."""


def ok(what: str) -> Finding:
    """Return a finding without problems."""
    return Finding("ok", what)


def unknown(what: str, do: str = "") -> Finding:
    """Return a finding for a check that was not possible."""
    return Finding("unknown", what, do=do)
