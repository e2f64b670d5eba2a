"""Health report for clients: without file names, names of devices, queries and error texts of the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from edge.gateway.watchdog import MAKES_PROGRESS

_OPEN: Final = ("status", "version", "parts", "mqtt", "mqtt_broker", "mqtt_gate", "outbox", "recent")
"""Members for monitors without a token."""

_SHOWN_ANNOUNCED: Final = 50
"""Faults of announcements and births that are listed."""
_SHOWN_FAULTS: Final = 20
"""Faults of a mapping file that are listed. Open pages of the application ask for them every ten seconds."""


def short_faults(faults: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return `MappingFiles.faults` with the first faults of each file, and the number of its other ones as
    `further_faults`. The texts are only in `reason`; a part that is empty is left out.
    """
    announced = [fault for fault in faults if fault.get("announced")]
    files = [fault for fault in faults if not fault.get("announced")]
    shown = [_short(fault) for fault in (*files, *announced[:_SHOWN_ANNOUNCED])]
    if (further := len(announced) - _SHOWN_ANNOUNCED) > 0:
        reason = f"{shown[-1]['reason']}\n{further} further faults of announcements; the log has them"
        shown[-1] = {**shown[-1], "reason": reason, "further_faults": further}
    return shown


def _short(fault: Mapping[str, object]) -> Mapping[str, object]:
    parts = fault.get("faults")
    if not isinstance(parts, list):
        return fault
    shown = parts[:_SHOWN_FAULTS]
    short = {
        **fault,
        "faults": [
            # A code has values, also none.
            {key: each[key] for key in each if key != "text" and (each[key] or (key == "reason_values" and code))}
            for each in shown
            for code in (each.get("reason_code"),)
        ],
    }
    if further := len(parts) - len(shown):
        lines = [str(each["text"]) for each in shown]
        short["reason"] = "\n".join(
            [*lines, f"{further} further faults; edge mapping check {fault['file']} lists them"]
        )
        short["further_faults"] = further
    return short


def without_texts(health: Mapping[str, object]) -> dict[str, object]:
    """Replace lists of faults and the names of devices by numbers, and error texts by a word. For every authenticated
    client.
    """
    reduced = dict(health)
    for name, value in health.items():
        if name == "parts" and isinstance(value, Mapping):
            reduced[name] = {
                part: state if state == MAKES_PROGRESS else "stands still" for part, state in value.items()
            }
        elif name in ("serial", "modbus", "sparkplug") and isinstance(value, Mapping):
            # The operator's names of devices are not for everyone who may read the status over MQTT.
            reduced[name] = Counter(str(state).partition(":")[0] for state in value.values())
        elif name in ("outbox", "recent") and isinstance(value, Mapping):
            reduced[name] = value["state"]
        elif name == "last_restart" and isinstance(value, Mapping):
            reduced[name] = value["reason"]
        elif name in ("storage", "announce_fault"):
            reduced[name] = "failing"
        elif name == "engine":
            reduced[name] = "busy"
        elif isinstance(value, list | dict) and name not in ("disk", "sparkplug_host"):
            reduced[name] = len(value)
    return reduced


def for_unauthenticated(health: Mapping[str, object]) -> dict[str, object]:
    """Return the members that an unauthenticated client may see."""
    return {name: value for name, value in without_texts(health).items() if name in _OPEN}
