"""Check of the Modbus devices that mapping files declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem, warning


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check each declared device as `/health` reports it. Without declared devices, nothing is reported."""
    devices = around.reported("modbus")
    if not isinstance(devices, Mapping):
        return
    missing = around.reported("modbus_missing") or {}
    for name, state in devices.items():
        word, _, reason = str(state).partition(": ")
        if names := missing.get(name):
            yield warning("modbus.no_value", name=name, values=", ".join(names))
        elif word == "connected":
            yield ok("modbus.answers", name=name)
        else:
            yield problem("modbus.silent", name=name, reason=f": {reason}" if reason else "")
