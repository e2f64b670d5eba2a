"""Profiles for tests: short ones, and the repaired listings of the SEPA paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge.jsap import Problem, Profile, ProfileEntry, ProfileError

EXAMPLES = Path(__file__).parents[2] / "examples"
CHAT = EXAMPLES / "chat" / "chat.jsap"
"""Listing 16. Repaired: a brace and two commas, texts on one line, missing protocol members."""
MONITORING = EXAMPLES / "monitoring" / "monitoring.jsap"
"""Listings 17 and 18. Repaired: braces, texts on one line, missing protocol members."""

NAMESPACES = {"ex": "http://example.org/", "schema": "http://schema.org/"}


def profile(**members) -> Profile:
    return Profile.parse(json.dumps({"namespaces": NAMESPACES, **members}))


def entry(kind: str, sparql: str, forced: dict | None = None, **members) -> ProfileEntry:
    """Return the only entry of a profile. `forced`: maps variables to a type, or to the whole binding."""
    bindings = {name: {"type": each} if isinstance(each, str) else each for name, each in (forced or {}).items()}
    listed = {"E": {"sparql": sparql, "forcedBindings": bindings, **members}}
    found = profile(**{"updates" if kind == "update" else "queries": listed})
    return found.update("E") if kind == "update" else found.query("E")


def query(sparql: str, forced: dict | None = None, **members) -> ProfileEntry:
    return entry("query", sparql, forced, **members)


def update(sparql: str, forced: dict | None = None, **members) -> ProfileEntry:
    return entry("update", sparql, forced, **members)


def problems(text: str, name: str = "profile.jsap") -> tuple[Problem, ...]:
    """Return the problems of a profile."""
    with pytest.raises(ProfileError) as refused:
        Profile.parse(text, name)
    return refused.value.problems


def refusals(kind: str, sparql: str, forced: dict | None = None) -> list[str]:
    """Return the reasons why an entry is refused."""
    with pytest.raises(ProfileError) as refused:
        entry(kind, sparql, forced)
    return [problem.reason for problem in refused.value.problems]
