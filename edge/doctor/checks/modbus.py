"""Check of the Modbus devices that mapping files declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each declared device as `/health` reports it. Without declared devices, nothing is reported."""
    devices = around.reported("modbus")
    if not isinstance(devices, Mapping):
        return
    for name, state in devices.items():
        word, _, reason = str(state).partition(": ")
        if word == "connected":
            yield ok(f"the Modbus device {name} answers")
        else:
            yield Finding(
                "problem",
                f"the Modbus device {name} does not answer{f': {reason}' if reason else ''}",
                "its values are not updated, and commands wait",
                "check its power and wiring, and host, `unit_id`, `baud` and `parity` in the mapping file "
                "(docs/modbus.md); the gateway tries again by itself",
            )
