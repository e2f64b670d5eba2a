"""Who may come to the box's MQTT broker: Mosquitto's names and passwords. The gateway itself is always there."""

from __future__ import annotations

import fcntl
import re
import subprocess
from pathlib import Path

from files import write

FILE = Path("/data/mosquitto/passwords")
GATEWAY = "gateway"
"""The broker's name for the gateway; no device has it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TAKEN = {GATEWAY, "sepa", "tele", "stat", "cmnd", "shellies", "senml"}
"""What stands first in topics of all; who were called so would have them for itself (sepa-edge.acl)."""


def may_be_called(name: str) -> bool:
    """Whether a device may have that name."""
    return bool(_NAME.fullmatch(name)) and name not in _TAKEN


def names() -> list[str]:
    """All that are let in."""
    if not FILE.exists():
        return []
    return [line.partition(":")[0] for line in FILE.read_text().splitlines()]


def let_in(name: str, password: str) -> None:
    """Give this name this password, whether it had one or not."""
    # No argument, which others on the machine could read.
    _change([], name, f"{password}\n{password}\n")


def shut_out(name: str) -> None:
    """Take the name off the list."""
    _change(["-D"], name, "")


def _change(options: list[str], name: str, lines: str) -> None:
    """In a copy, since Mosquitto may read the list at any moment; one after another."""
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
