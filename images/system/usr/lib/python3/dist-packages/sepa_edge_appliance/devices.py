"""Devices that may connect to the box's MQTT broker: Mosquitto's password file. It always contains the gateway."""

from __future__ import annotations

import fcntl
import re
import subprocess
from pathlib import Path

from sepa_edge_appliance.files import write

FILE = Path("/data/mosquitto/passwords")
GATEWAY = "gateway"
"""User name of the gateway at the broker. Devices cannot use it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TAKEN = {GATEWAY, "sepa", "tele", "stat", "cmnd", "shellies", "senml"}
"""First levels of shared topics. A device of such a name would own these topics (sepa-edge.acl)."""


def may_be_called(name: str) -> bool:
    """Return whether a device may have this name."""
    return bool(_NAME.fullmatch(name)) and name not in _TAKEN


def names() -> list[str]:
    """Return the names of all devices, and of the gateway."""
    if not FILE.exists():
        return []
    return [line.partition(":")[0] for line in FILE.read_text().splitlines()]


def let_in(name: str, password: str) -> None:
    """Add a device, or change its password."""
    # The password goes to standard input: other users could read arguments.
    _change([], name, f"{password}\n{password}\n")


def shut_out(name: str) -> None:
    """Remove a device."""
    _change(["-D"], name, "")


def _change(options: list[str], name: str, lines: str) -> None:
    """Change a copy of the file and replace it atomically: Mosquitto may read it at any time. A lock orders changes."""
    draft = FILE.with_name("passwords.draft")
    with FILE.with_name("passwords.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(FILE.read_text() if FILE.exists() else "")
        command = ["mosquitto_passwd", *options, str(draft), name]
        subprocess.run(
            command, input=lines, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        write(FILE, draft.read_text(), "mosquitto", 0o640)
        draft.unlink()
