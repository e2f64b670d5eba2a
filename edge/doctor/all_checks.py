"""All checks in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from edge.doctor.checks import (
    backlog,
    broker,
    card,
    certificates,
    clock,
    disk,
    files,
    gateway,
    memory,
    modbus,
    recent,
    restarts,
    serial,
    sparkplug,
    temperature,
    units,
    update,
)
from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, unknown

Check = Callable[[DoctorContext], Iterable[Finding]]

CHECKS: Final[dict[str, Check]] = {
    "gateway": gateway.check,
    "restarts": restarts.check,
    "disk": disk.check,
    "card": card.check,
    "files": files.check,
    "recent": recent.check,
    "clock": clock.check,
    "broker": broker.check,
    "serial": serial.check,
    "modbus": modbus.check,
    "sparkplug": sparkplug.check,
    "certificates": certificates.check,
    "backlog": backlog.check,
    "memory": memory.check,
    "temperature": temperature.check,
    "units": units.check,
    "update": update.check,
}
"""Checks by name."""


def examine(around: DoctorContext) -> Iterator[tuple[str, Finding]]:
    """Yield the findings of all checks, with their names. A failing check does not stop the others."""
    for name, check in CHECKS.items():
        try:
            for finding in check(around):
                yield name, finding
        except Exception as error:  # noqa: BLE001  one failed check must not stop the others
            yield name, unknown("check.failed", reason=f"{type(error).__name__}: {error}")
