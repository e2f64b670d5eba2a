"""Who may come to the box's MQTT broker: Mosquitto's names and passwords. The gateway itself is always there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from files import write

FILE = Path("/data/mosquitto/passwords")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
GATEWAY = "gateway"
"""The broker's name for the gateway; no device has it."""


def names() -> list[str]:
    """All that are let in."""
    if not FILE.exists():
        return []
    return [line.partition(":")[0] for line in FILE.read_text().splitlines()]


def let_in(name: str, password: str) -> None:
    """Give this name this password, whether it had one or not."""
    _change([], name, password)


def shut_out(name: str) -> None:
    """Take the name off the list."""
    _change(["-D"], name, "")


def _change(options: list[str], name: str, password: str) -> None:
    """In a copy, since Mosquitto may read the list at any moment."""
    draft = FILE.with_name("passwords.draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(FILE.read_text() if FILE.exists() else "")
    # The password is no argument, which others on the machine could read.
    command = ["mosquitto_passwd", *options, str(draft), name]
    lines = f"{password}\n{password}\n" if password else ""
    subprocess.run(command, input=lines, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    write(FILE, draft.read_text(), "mosquitto", 0o640)
    draft.unlink()
