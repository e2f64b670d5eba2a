"""How the gateway is, for those who do not run it: without the operator's files, queries, and the texts of faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge.gateway.watchdog import MOVES

_OPEN: Final = ("status", "version", "parts", "mqtt", "mqtt_gate", "outbox")
"""What a monitor without a token needs."""


def without_texts(health: Mapping[str, object]) -> dict[str, object]:
    """The same, with a number in place of faults and a word in place of reasons: for every client."""
    told = dict(health)
    for name, value in health.items():
        if name == "parts" and isinstance(value, Mapping):
            told[name] = {part: state if state == MOVES else "stands still" for part, state in value.items()}
        elif name == "serial" and isinstance(value, Mapping):
            told[name] = {port: str(state).partition(":")[0] for port, state in value.items()}
        elif name == "outbox" and isinstance(value, Mapping):
            told[name] = value["state"]
        elif name == "last_restart" and isinstance(value, Mapping):
            told[name] = value["reason"]
        elif name == "storage":
            told[name] = "failing"
        elif name == "engine":
            told[name] = "busy"
        elif isinstance(value, list | dict):
            told[name] = len(value)
    return told


def for_strangers(health: Mapping[str, object]) -> dict[str, object]:
    """What there is to know of it without a token."""
    return {name: value for name, value in without_texts(health).items() if name in _OPEN}
