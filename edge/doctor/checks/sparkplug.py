"""Check of the edge nodes and devices of Sparkplug B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem

_MOST: Final = 10
"""Findings on nodes and devices. A plant that is switched off must not hide those of other checks."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each edge node and device as `/health` reports it. Without `sparkplug.enabled`, nothing is reported."""
    states = around.reported("sparkplug")
    if not isinstance(states, Mapping):
        return
    faulty = [(name, *str(state).partition(": ")[::2]) for name, state in states.items() if state != "connected"]
    if connected := len(states) - len(faulty):
        yield ok("sparkplug.connected", count=connected)
    # Refused ones first: they need a change, and are few.
    faulty.sort(key=lambda each: each[1] != "refused")
    for name, word, reason in faulty[:_MOST]:
        if word == "refused":
            yield problem("sparkplug.refused", name=name, reason=f": {reason}" if reason else "")
        else:
            yield problem("sparkplug.away", name=name)
    if (more := len(faulty) - _MOST) > 0:
        yield problem("sparkplug.more", count=more)
