"""Keys of earlier versions: the loader renames or ignores them, with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from edge.config.problem_messages import fixed

RENAMED: Final[Mapping[str, str]] = {
    "http.max_body": "http.max_message",
    "coap.max_body": "coap.max_message",
    "mqtt_gate.max_clients": "mqtt_gate.max_connections",
}
"""Dotted key to its new name, which the gates share with [sessions]."""

REPLACED: Final[Mapping[str, str]] = {
    "engine.evaluation_timeout": "engine.query_timeout",
    "engine.max_changes": "engine.max_steps",
    "engine.max_joined": "engine.max_steps",
    "engine.max_solutions": "engine.max_query_memory",
    "engine.max_text": "engine.max_query_memory",
    "engine.update_timeout": "engine.query_timeout",
}
"""Dotted key to the key that limits the same today, in another unit."""

REMOVED: Final = fixed()
"""Dotted keys of values that are no longer settings."""


def update(tree: dict[str, Any], place: str) -> list[str]:
    """Rename and remove former keys in the content of a settings file. Returns a warning for each."""
    warnings = []
    for key in sorted({*RENAMED, *REPLACED, *REMOVED}):
        section, _, name = key.partition(".")
        table = tree.get(section)
        if not isinstance(table, dict) or name not in table:
            continue
        value = table.pop(name)
        if new := RENAMED.get(key):
            # If both names are set, the new one wins.
            table.setdefault(new.partition(".")[2], value)
        warnings.append(f"{place}: {warning(key)}")
    return warnings


def warning(key: str) -> str:
    """Return the warning for a former key, with the remedy."""
    if new := RENAMED.get(key):
        return f"{key}: the key has a new name; write {new}"
    if new := REPLACED.get(key):
        return f"{key}: {new} limits this now, and the key has no effect; remove it"
    return f"{key}: this is no longer a setting and has no effect; remove it"
