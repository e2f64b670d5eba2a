"""Check of the edge nodes and devices of Sparkplug B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok

_MOST: Final = 10
"""Findings on nodes and devices. A plant that is switched off must not hide those of other checks."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each edge node and device as `/health` reports it. Without `sparkplug.enabled`, nothing is reported."""
    states = around.reported("sparkplug")
    if not isinstance(states, Mapping):
        return
    faulty = [(name, state) for name, state in states.items() if state != "connected"]
    if connected := len(states) - len(faulty):
        yield ok(f"Sparkplug edge nodes and devices that are connected: {connected}")
    for name, state in faulty[:_MOST]:
        word, _, reason = str(state).partition(": ")
        if word == "refused":
            yield Finding(
                "problem",
                f"the birth of the Sparkplug device {name} is refused{f': {reason}' if reason else ''}",
                "its values are ignored",
                "remove the cause (docs/sparkplug.md), then restart the edge node",
            )
        else:
            yield Finding(
                "problem",
                f"the Sparkplug edge node or device {name} is not connected",
                "its values are old, and commands wait for its birth",
                "check its power, its connection to the broker and its primary host identifier (docs/sparkplug.md)",
            )
    if (more := len(faulty) - _MOST) > 0:
        yield Finding(
            "problem",
            f"{more} more Sparkplug edge nodes and devices are not connected or refused",
            "as above",
            "see `sparkplug` in /health",
        )
