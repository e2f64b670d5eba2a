"""Check of the systemd units of the gateway and the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok, unknown

UNIT: Final = "edge.service"
_PROPERTIES: Final = ("LoadState", "ActiveState", "UnitFileState", "NRestarts", "Result")
_MANY: Final = 3
_FAILED: Final = ("systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the state of the gateway's unit and the failed units of the host, as `systemctl` reports them."""
    if not (around.root / "run/systemd/system").is_dir():
        yield unknown("systemd does not run here")
        return
    failed = [line.split()[0] for line in (around.run(*_FAILED) or "").splitlines() if line.split()]
    others = [name for name in failed if name != UNIT]
    if others:
        yield Finding(
            "warning",
            f"failed units: {', '.join(others)}",
            "a service of the host does not work",
            f"systemctl status {' '.join(others)}",
        )
    yield from _own(around)


def _own(around: DoctorContext) -> Iterator[Finding]:
    output = around.run("systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}")
    # Lines of the form NAME=VALUE. `systemctl show` also succeeds for a unit that does not exist.
    found = dict(line.partition("=")[::2] for line in (output or "").splitlines())
    if found.get("LoadState") != "loaded":
        yield unknown(f"systemd has no {UNIT}: the gateway does not start with the host, or another program starts it")
        return
    if found.get("ActiveState") == "failed":
        yield Finding(
            "problem",
            f"{UNIT} has failed ({found.get('Result')})",
            "systemd does not restart it",
            f"`journalctl -u {UNIT} -n 50` has the reason; then `systemctl restart {UNIT}`",
        )
    elif found.get("ActiveState") != "active":
        yield Finding(
            "warning", f"{UNIT} is {found.get('ActiveState')}", "the gateway is down", f"systemctl start {UNIT}"
        )
    if found.get("UnitFileState") == "disabled":
        yield Finding(
            "warning", f"{UNIT} is not enabled", "after a power cut the gateway stays down", f"systemctl enable {UNIT}"
        )
    restarts = int(found.get("NRestarts") or 0)
    if restarts:
        yield Finding(
            "problem" if restarts >= _MANY else "warning",
            f"systemd has restarted the gateway {restarts} times",
            "it ends unexpectedly",
            "see the check `restarts` and the log",
        )
    elif found.get("ActiveState") == "active":
        yield ok(f"{UNIT} is active, and was never restarted")
