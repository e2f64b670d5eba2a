"""Install an update that the gateway has received over HTTP, or restart into it. Runs as root (edge-update.service).

`python3 -m sepa_edge_appliance.update [ended]`: carries out the request; `ended`: reports an installation that was
ended before it could report its outcome.

The gateway may write only to `INCOMING`, and may be in the hands of an attacker. So the request must be a file, the
update is moved to where the gateway cannot exchange it, RAUC checks its signature, and a restart is possible only into
an installed update. The request is removed before it is carried out: after a power cut the system starts as before, and
the owner sends the update again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sepa_edge_appliance import trial
from sepa_edge_appliance.files import rename, sync_directory, write

STATE = Path("/data/rauc/state")
"""JSON for the gateway: state (installing, installed or failed), percent, message and version."""
INCOMING = Path("/data/rauc/incoming")
BUNDLE = Path("/data/rauc/update.raucb")
RAUC = "/usr/bin/rauc"
_STEP = re.compile(r"^\s*(\d{1,3})% (.*)$")
_REASON = re.compile(r"LastError: (.*)$")


def main(word: str = "") -> None:
    """Carry out the request, or report that it was ended."""
    if word == "ended":
        ended()
        return
    request = INCOMING / "request"
    wanted = content(request)
    if wanted == "install":
        report("installing", percent=0, message="")  # before the request is gone, so that no other update begins
    clear(request)
    if wanted == "install":
        install()
    elif wanted == "restart":
        restart()
    else:
        sys.exit("the request is unknown; it can be install or restart")


def install() -> None:
    """Install the update, and remove its file."""
    try:
        if trial.slot_of(trial.TRIAL) == trial.booted():
            raise ValueError("the running system is not confirmed yet: wait until it is confirmed, or undone")
        clear(BUNDLE)
        rename(INCOMING / "update.raucb", BUNDLE)
        if not stat.S_ISREG(BUNDLE.lstat().st_mode):
            raise ValueError("the update is not a file")
        with subprocess.Popen(
            [RAUC, "install", BUNDLE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            reason = follow(process.stdout or ())
        if process.returncode:
            raise ValueError(reason or f"RAUC ended with exit code {process.returncode}")
        version = trial.version_of(trial.TRIAL)
    except (OSError, ValueError) as error:
        clear(BUNDLE)  # first: the disk may be full
        report("failed", message=str(error))
        sys.exit(str(error))
    clear(BUNDLE)
    report("installed", version=version)


def restart() -> None:
    """Restart into an installed update."""
    if trial.slot_of(trial.TRIAL) != trial.other():
        report("failed", message="no installed update waits for a restart")
        sys.exit("no installed update waits for a restart")
    trial.reboot()


def ended() -> None:
    """Report an installation that was killed."""
    if STATE.exists() and json.loads(STATE.read_text())["state"] == "installing":
        clear(BUNDLE)
        report("failed", message="the installation was ended; see `journalctl -u edge-update`")


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


def content(file: Path) -> str:
    """Return the word in a file of the gateway, or "" if it is not a regular file."""
    try:
        # Another user may have put anything there: opening a FIFO would block, and a link leads to other files.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 20).decode(errors="replace") if stat.S_ISREG(os.fstat(descriptor).st_mode) else ""
    finally:
        os.close(descriptor)


def clear(file: Path) -> None:
    """Remove a file, or whatever has its name."""
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    sync_directory(file.parent)


if __name__ == "__main__":
    main(*sys.argv[1:])
