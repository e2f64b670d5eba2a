"""Check of the systemd units of the gateway and the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, problem, unknown, warning

UNIT: Final = "edge.service"
_PROPERTIES: Final = ("LoadState", "ActiveState", "UnitFileState", "NRestarts", "Result")
_MANY: Final = 3
_FAILED: Final = ("systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the state of the gateway's unit and the failed units of the host, as `systemctl` reports them."""
    if not (around.root / "run/systemd/system").is_dir():
        yield unknown("units.no_systemd")
        return
    failed = [line.split()[0] for line in (around.run(*_FAILED) or "").splitlines() if line.split()]
    others = [name for name in failed if name != UNIT]
    if others:
        yield warning("units.others_failed", names=", ".join(others), units=" ".join(others))
    yield from _own(around)


def _own(around: DoctorContext) -> Iterator[Finding]:
    output = around.run("systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}")
    # Lines of the form NAME=VALUE. `systemctl show` also succeeds for a unit that does not exist.
    found = dict(line.partition("=")[::2] for line in (output or "").splitlines())
    if found.get("LoadState") != "loaded":
        yield unknown("units.not_there", unit=UNIT)
        return
    if found.get("ActiveState") == "failed":
        yield problem("units.failed", unit=UNIT, result=str(found.get("Result")))
    elif found.get("ActiveState") != "active":
        yield warning("units.inactive", unit=UNIT, state=str(found.get("ActiveState")))
    if found.get("UnitFileState") == "disabled":
        yield warning("units.disabled", unit=UNIT)
    restarts = int(found.get("NRestarts") or 0)
    if restarts:
        yield Finding("problem" if restarts >= _MANY else "warning", "units.restarted", {"count": restarts})
    elif found.get("ActiveState") == "active":
        yield ok("units.active", unit=UNIT)
