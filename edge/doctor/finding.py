"""What a check found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem", "unknown"]
"""A warning becomes a problem if nothing is done; `unknown`: it could not be looked at."""

Fix = Callable[[], str]
"""Does what is safe, and returns what it did. Raises `OSError`, `EdgeError`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is well, or is not."""

    state: State
    what: str
    """What is so, with figures; a sentence without its full stop, as the other texts."""
    why: str = ""
    """Why it matters."""
    do: str = ""
    """What to do."""
    fix: Fix | None = None
    """Does it, where that is safe."""


def ok(what: str) -> Finding:
    """All is well."""
    return Finding("ok", what)


def unknown(what: str, do: str = "") -> Finding:
    """It could not be looked at."""
    return Finding("unknown", what, do=do)
