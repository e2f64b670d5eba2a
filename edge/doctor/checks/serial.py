"""Check of the serial ports that mapping files declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each declared port as `/health` reports it. Without declared ports, nothing is reported."""
    ports = around.reported("serial")
    if not isinstance(ports, Mapping):
        return
    for name, state in ports.items():
        word, _, reason = str(state).partition(": ")
        if word == "connected":
            yield ok(f"the port {name} is connected")
        else:
            yield Finding(
                "problem",
                f"the port {name} is not connected{f': {reason}' if reason else ''}",
                "its device neither sends readings nor gets commands",
                "check the plug, its `device` in the mapping file, and the group dialout "
                "(docs/serial.md); the gateway reconnects by itself",
            )
