"""Check of the serial ports that mapping files declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each declared port as `/health` reports it. Without declared ports, nothing is reported."""
    ports = around.reported("serial")
    if not isinstance(ports, Mapping):
        return
    for name, state in ports.items():
        word, _, reason = str(state).partition(": ")
        if word == "connected":
            yield ok("serial.connected", name=name)
        else:
            yield problem("serial.not_connected", name=name, reason=f": {reason}" if reason else "")
