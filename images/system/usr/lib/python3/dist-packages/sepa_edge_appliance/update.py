"""Install an update that the gateway has received over HTTP, or restart into it. Runs as root (edge-update.service).

The gateway may write only to `INCOMING`, and may be in the hands of an attacker. So RAUC checks the signature, nothing
is written into that directory, and a restart is possible only into an installed update.

The request is removed before it is carried out: after a power cut the system starts as before, and the owner sends the
update again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sepa_edge_appliance import trial
from sepa_edge_appliance.files import remove, write

STATE = Path("/data/rauc/state")
"""JSON for the gateway: state (installing, installed or failed), percent, message and version."""
INCOMING = Path("/data/rauc/incoming")
RAUC = "/usr/bin/rauc"
_STEP = re.compile(r"^\s*(\d{1,3})% (.*)$")
_REASON = re.compile(r"LastError: (.*)$")


def main() -> None:
    """Carry out the request."""
    file = INCOMING / "request"
    with file.open(encoding="utf-8", errors="replace") as request:
        word = request.read(20)
    remove(file)
    if word == "install":
        install(INCOMING / "update.raucb")
    elif word == "restart":
        if trial.slot_of(trial.TRIAL) != trial.other():
            sys.exit("no installed update waits for a restart")
        trial.reboot()
    else:
        sys.exit(f"{word!r} is no request; use install or restart")


def install(bundle: Path) -> None:
    """Install an update, and remove its file."""
    report("installing", percent=0, message="")
    try:
        with subprocess.Popen(
            [RAUC, "install", bundle], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            reason = follow(process.stdout)
        if process.returncode:
            report("failed", message=reason or f"RAUC ended with exit code {process.returncode}")
            sys.exit(reason)
        report("installed", version=trial.version_of(trial.TRIAL))
    finally:
        remove(bundle)


def follow(lines: Iterable[str]) -> str:
    """Report the steps of an installation. Returns the reason of a failure, or ""."""
    reason = ""
    for line in lines:
        print(line, end="", flush=True)
        if step := _STEP.match(line):
            report("installing", percent=int(step[1]), message=step[2][:200])
        elif found := _REASON.search(line):
            reason = found[1].strip()[:1000]
    return reason


def report(state: str, **facts: object) -> None:
    """Write the state for the gateway."""
    write(STATE, json.dumps({"state": state, **facts}), "root", 0o644)


if __name__ == "__main__":
    main()
