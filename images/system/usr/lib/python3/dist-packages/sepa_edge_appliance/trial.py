"""An unconfirmed update, from its installation until its gateway is healthy, or the previous system runs again.

`python3 -m sepa_edge_appliance.trial WORD`:

    installing  RAUC is about to write a system: its first start confirms or undoes it (RAUC's pre-install handler)
    good        the gateway of this system serves: it confirms an update (after boot-complete.target)
    failed      it does not: after an update, the other system starts instead

An older gateway may not be able to read the data of a newer one. So `begin` copies the data before the first start of
the new system, and `end` restores the copy if the old system cannot read the current data.

The boot loader counts starts. A start of an unconfirmed update is good when the gateway serves; any other start as soon
as it has its data. A gateway that does not serve does not justify leaving a proven system, but a system that does not
start does.

The power may be cut at any moment, so each step is on the disk before the next one begins (`files`), and the order of
the steps matters:

- An installation removes the copy of an earlier update before it writes `TRIAL`. Otherwise the old copy would pass for
  the data before this update.
- The copy is complete before it has its name (`BEFORE`), and has it before the gateway of the update starts.
- An update is confirmed by the removal of `TRIAL`; only then is the copy removed.
- An update is undone when the data is back, `UNDONE` is written and `TRIAL` removed, in this order: a start that was
  interrupted in between begins again where it was.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sepa_edge_appliance import boot_counter
from sepa_edge_appliance.files import remove, remove_tree, removed, rename, write

DATA = Path("/data/sepa-edge")
TRIAL = Path("/data/rauc/trial")
"""Exists while an update is unconfirmed. Content: the boot loader's name of its slot, and the version of the update."""
UNDONE = Path("/data/rauc/undone")
"""Exists after an update was undone. Content as in `TRIAL`."""
BEFORE = Path("/data/before-update")
"""Copy of the data from before the new system's first start."""
AFTER = Path("/data/of-undone-update")
"""Data of an undone update that the previous system cannot read."""
LOST = Path("/run/edge-data-lost")
"""Exists if the data partition could not be mounted: /data then lasts only until the next start."""
_TRIES = 3
"""Failed starts after which the boot loader uses the other slot (grub.cfg)."""


def main(word: str) -> None:
    """Run a command of RAUC or of the systemd units: installing, good or failed."""
    if LOST.exists():
        sys.exit(
            "the data partition cannot be read: the state of updates is unknown, and this start does not count as good"
        )
    if word == "installing":
        remove_tree(BEFORE)
        remove_tree(AFTER)
        remove(UNDONE)
        write(TRIAL, f"{other()} {version(os.environ['RAUC_BUNDLE_MOUNT_POINT'])}", "root", 0o644)
    elif word == "good":
        good()
    elif word == "failed":
        if slot_of(TRIAL) == booted():
            write(UNDONE, TRIAL.read_text(), "root", 0o644)
            boot_counter.mark(booted(), good=False, booted=booted())
            reboot()
    else:
        sys.exit(f"{word} is not known; use installing, good or failed")


def good() -> None:
    """Confirm the update: the gateway of this system serves."""
    if slot_of(TRIAL) == booted():
        boot_counter.mark(booted(), good=True, booted=booted())
        remove(TRIAL)
        remove_tree(BEFORE)
    if slot_of(UNDONE) == booted():  # the owner has started it again on purpose
        remove(UNDONE)
    elif UNDONE.exists():
        boot_counter.mark(other(), good=False, booted=booted())


def begin() -> None:
    """Copy the data before an unconfirmed system starts to use it, if the space suffices."""
    if LOST.exists():
        return
    if slot_of(TRIAL) != booted():
        boot_counter.clear_count(booted(), booted())
        return
    if BEFORE.exists():
        return
    needed = sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file())
    if needed * 1.2 > shutil.disk_usage(DATA).free:
        print("not enough space for a copy of the data; the update is tried without one", file=sys.stderr)
        return
    new = unfinished(BEFORE)
    subprocess.run(["cp", "--archive", DATA, new], check=True)
    os.sync()
    rename(new, BEFORE)


def end() -> str:
    """Finish an undone update, and restore data that this system can read. Returns a message for the owner, or ""."""
    if LOST.exists():
        return "the data partition cannot be read: nothing is kept, and clients cannot register; docs/images.md"
    for leftover in (unfinished(BEFORE), removed(BEFORE), removed(AFTER)):  # of an interrupted start
        shutil.rmtree(leftover, ignore_errors=True)
    if BEFORE.exists() and AFTER.exists() and not any(DATA.iterdir()):
        put_back()  # in either system: none may start with empty data
    env = boot_counter.read(booted())
    tried = int(env.get(f"{other()}_TRY") or 0)
    if slot_of(TRIAL) == other():
        if tried or slot_of(UNDONE) == other() or BEFORE.exists():
            if BEFORE.exists() and formats(BEFORE) != formats(DATA):
                put_back()
            write(UNDONE, TRIAL.read_text(), "root", 0o644)
        remove(TRIAL)  # without these signs, its installation was interrupted
    if not TRIAL.exists():
        remove_tree(BEFORE)
    if slot_of(UNDONE) == other():
        aside = f"; its data is in {AFTER}" if AFTER.exists() else ""
        return f"update: {version_of(UNDONE)} was undone: it did not reach health{aside}"
    if env.get("ORDER", "").startswith(other()) and env.get(f"{other()}_OK") == "1" and tried >= _TRIES:
        boot_counter.clear_count(other(), booted())
        return (
            f"the system in slot {other()} did not start three times: this is the one before it, until the next start"
        )
    return ""


def put_back() -> None:
    """Restore the data from before the update, and move that of the update to `AFTER`. Resumes after interruptions."""
    if any(DATA.iterdir()):
        remove_tree(AFTER)
        rename(DATA, AFTER)
    rename(BEFORE, DATA)  # `DATA` is missing or empty here: the initial RAM disk creates it


def unfinished(directory: Path) -> Path:
    """Return the name of a copy until it is complete."""
    return directory.with_name(directory.name + ".new")


def slot_of(file: Path) -> str:
    """Return the slot of the update in `TRIAL` or `UNDONE`, or "" without one."""
    return file.read_text().partition(" ")[0] if file.exists() else ""


def version_of(file: Path) -> str:
    """Return the version of the update in `TRIAL` or `UNDONE`."""
    return file.read_text().partition(" ")[2]


def formats(data: Path) -> dict[str, int]:
    """Return the schema version of each SQLite file of the gateway."""
    found = {}
    for file in sorted(data.glob("*.sqlite3")):
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
                found[file.name] = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error:
            found[file.name] = -1
    return found


def version(bundle: str) -> str:
    """Return the version in the manifest of an update."""
    found = re.search(r"^version=(.*)$", (Path(bundle) / "manifest.raucm").read_text(), re.MULTILINE)
    return found[1] if found else "the last update"


def booted() -> str:
    """Return the boot loader's name for the slot of this system."""
    found = re.search(r"\brauc\.slot=(\w+)", Path("/proc/cmdline").read_text())
    return found[1] if found else "A"


def other() -> str:
    """Return the boot loader's name for the other slot."""
    return "B" if booted() == "A" else "A"


def reboot() -> None:
    """Reboot into the other system."""
    subprocess.run(["systemctl", "--no-block", "reboot"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
