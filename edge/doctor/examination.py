"""All checks, in the order in which they are told."""

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
    restarts,
    serial,
    temperature,
    units,
    update,
)
from edge.doctor.context import Context
from edge.doctor.finding import Finding, unknown

Check = Callable[[Context], Iterable[Finding]]

CHECKS: Final[dict[str, Check]] = {
    "gateway": gateway.check,
    "restarts": restarts.check,
    "disk": disk.check,
    "card": card.check,
    "files": files.check,
    "clock": clock.check,
    "broker": broker.check,
    "serial": serial.check,
    "certificates": certificates.check,
    "backlog": backlog.check,
    "memory": memory.check,
    "temperature": temperature.check,
    "units": units.check,
    "update": update.check,
}
"""By their names."""


def examine(around: Context) -> Iterator[tuple[str, Finding]]:
    """What each check finds, with its name. One that fails itself is no reason not to look at the rest."""
    for name, check in CHECKS.items():
        try:
            for finding in check(around):
                yield name, finding
        except Exception as error:  # noqa: BLE001  whatever it is, the doctor goes on
            yield name, unknown(f"this check failed itself: {type(error).__name__}: {error}")
