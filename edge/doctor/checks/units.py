"""What does systemd say of the gateway, and of the rest of the machine?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.doctor.context import Context
from edge.doctor.finding import Finding, ok, unknown

UNIT: Final = "edge.service"
_PROPERTIES: Final = ("LoadState", "ActiveState", "UnitFileState", "NRestarts", "Result")
_MANY: Final = 3
_FAILED: Final = ("systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")


def check(around: Context) -> Iterator[Finding]:
    """Told by `systemctl`."""
    if not (around.root / "run/systemd/system").is_dir():
        yield unknown("systemd does not run here")
        return
    failed = [line.split()[0] for line in (around.run(*_FAILED) or "").splitlines() if line.split()]
    others = [name for name in failed if name != UNIT]
    if others:
        yield Finding(
            "warning",
            f"failed units: {', '.join(others)}",
            "something of the machine does not do what it should",
            f"systemctl status {' '.join(others)}",
        )
    yield from _own(around)


def _own(around: Context) -> Iterator[Finding]:
    told = around.run("systemctl", "show", UNIT, f"--property={','.join(_PROPERTIES)}")
    found = dict(line.partition("=")[::2] for line in (told or "").splitlines())
    if found.get("LoadState") != "loaded":
        yield unknown(f"systemd has no {UNIT}: the gateway is not started with the machine, or by something else")
        return
    if found.get("ActiveState") == "failed":
        yield Finding(
            "problem",
            f"{UNIT} has failed ({found.get('Result')})",
            "it is not started again by itself",
            f"`journalctl -u {UNIT} -n 50` says why; then `systemctl restart {UNIT}`",
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
            "it ends by itself, which it should not",
            "the check `restarts`, and the log, say why",
        )
    elif found.get("ActiveState") == "active":
        yield ok(f"{UNIT} is active, and was never restarted")
