#!/usr/bin/python3 -I
"""An update on trial, from its installation until its gateway has reached health, or the system before it is back.

    trial.py installing  RAUC is about to write a system: its first start is a trial (RAUC's pre-install handler)
    trial.py good        the gateway of this system serves: if it is on trial, it stays (after boot-complete.target)
    trial.py failed      it does not: if it is on trial, the other system starts instead

What a newer gateway makes of its data an older one may not read, so data is copied aside before the new system's first
start (`begin`), and the copy takes its place again if the old system could not read what the new one left (`end`).

The boot loader counts starts. One on trial is good when the gateway serves; any other one as soon as it has its data:
a gateway that does not serve is no reason to leave a system that did, but a system that does not start is one.

The power may be cut at any moment, so each step is on the disk before the next one begins (`files`), and the order of
the steps matters:

- An installation removes the copy of an earlier update before it writes `TRIAL`: else the old copy would be taken for
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

sys.path.insert(0, str(Path(__file__).parent))

import bootenv
from files import remove, remove_tree, removed, rename, write

DATA = Path("/data/sepa-edge")
TRIAL = Path("/data/rauc/trial")
"""There while an update is on trial: the boot loader's name for its slot, and the update's version."""
UNDONE = Path("/data/rauc/undone")
"""There when an update was undone: the same of it."""
BEFORE = Path("/data/before-update")
"""The data as it was before the new system's first start."""
AFTER = Path("/data/of-undone-update")
"""The data that an update left which was undone, where the system before it cannot read it."""
LOST = Path("/run/edge-data-lost")
"""There when the data partition could not be mounted: what is in /data is of this start alone."""
_TRIES = 3
"""Starts in vain after which the boot loader takes the other slot (grub.cfg)."""


def main(word: str) -> None:
    """What RAUC and the units tell."""
    if LOST.exists():
        sys.exit("the data partition cannot be read: nothing is known of updates, and this start is no good one")
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
            bootenv.mark(booted(), good=False, booted=booted())
            reboot()
    else:
        sys.exit(f"{word} is not known; there are installing, good and failed")


def good() -> None:
    """This system serves."""
    if slot_of(TRIAL) == booted():
        bootenv.mark(booted(), good=True, booted=booted())
        remove(TRIAL)
        remove_tree(BEFORE)
    if slot_of(UNDONE) == booted():  # the owner wanted it all the same
        remove(UNDONE)
    elif UNDONE.exists():
        bootenv.mark(other(), good=False, booted=booted())


def begin() -> None:
    """Before anything touches the data: of a system on trial keep a copy of it, where there is room for one."""
    if LOST.exists():
        return
    if slot_of(TRIAL) != booted():
        bootenv.clear_count(booted(), booted())
        return
    if BEFORE.exists():
        return
    needed = sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file())
    if needed * 1.2 > shutil.disk_usage(DATA).free:
        print("no room for a copy of the data before the update is tried; it is tried without", file=sys.stderr)
        return
    new = unfinished(BEFORE)
    subprocess.run(["cp", "--archive", DATA, new], check=True)
    os.sync()
    rename(new, BEFORE)


def end() -> str:
    """What to tell the owner where this is not the system that was wanted; with data that this one can read."""
    if LOST.exists():
        return "the data partition cannot be read: nothing is kept, and nobody can come in; docs/images.md"
    for leftover in (unfinished(BEFORE), removed(BEFORE), removed(AFTER)):  # of a start that was interrupted
        shutil.rmtree(leftover, ignore_errors=True)
    if BEFORE.exists() and AFTER.exists() and not any(DATA.iterdir()):
        put_back()  # whichever system starts: none may begin with empty data
    env = bootenv.read(booted())
    tried = int(env.get(f"{other()}_TRY") or 0)
    if slot_of(TRIAL) == other():
        if tried or slot_of(UNDONE) == other() or BEFORE.exists():
            if BEFORE.exists() and formats(BEFORE) != formats(DATA):
                put_back()
            write(UNDONE, TRIAL.read_text(), "root", 0o644)
        remove(TRIAL)  # else its installation has not come to its end
    if not TRIAL.exists():
        remove_tree(BEFORE)
    if slot_of(UNDONE) == other():
        aside = f"; its data is in {AFTER}" if AFTER.exists() else ""
        return f"update: {version_of(UNDONE)} was undone: it did not reach health{aside}"
    if env.get("ORDER", "").startswith(other()) and env.get(f"{other()}_OK") == "1" and tried >= _TRIES:
        bootenv.clear_count(other(), booted())
        return (
            f"the system in slot {other()} did not start three times: this is the one before it, until the next start"
        )
    return ""


def put_back() -> None:
    """The data of before the update; that of the update aside. Where this was interrupted, it goes on."""
    if any(DATA.iterdir()):
        remove_tree(AFTER)
        rename(DATA, AFTER)
    rename(BEFORE, DATA)  # which is missing, or empty: the initial RAM disk makes it


def unfinished(directory: Path) -> Path:
    """The name that a copy has until it is complete."""
    return directory.with_name(directory.name + ".new")


def slot_of(file: Path) -> str:
    """The slot of the update that is on trial, or that was undone; empty where none was."""
    return file.read_text().partition(" ")[0] if file.exists() else ""


def version_of(file: Path) -> str:
    """Its version."""
    return file.read_text().partition(" ")[2]


def formats(data: Path) -> dict[str, int]:
    """The version of each of the gateway's files, as it writes them there."""
    found = {}
    for file in sorted(data.glob("*.sqlite3")):
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
                found[file.name] = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error:
            found[file.name] = -1
    return found


def version(bundle: str) -> str:
    """What the update says it is."""
    found = re.search(r"^version=(.*)$", (Path(bundle) / "manifest.raucm").read_text(), re.MULTILINE)
    return found[1] if found else "the last update"


def booted() -> str:
    """The boot loader's name for the slot of this system."""
    found = re.search(r"\brauc\.slot=(\w+)", Path("/proc/cmdline").read_text())
    return found[1] if found else "A"


def other() -> str:
    """And for the other one."""
    return "B" if booted() == "A" else "A"


def reboot() -> None:
    """Start the other system."""
    subprocess.run(["systemctl", "--no-block", "reboot"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
