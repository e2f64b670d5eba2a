#!/usr/bin/python3 -I
"""An update on trial, from its installation until its gateway has reached health, or the system before it is back.

    trial.py installed   RAUC has written a system: its first start is a trial (RAUC's post-install handler)
    trial.py good        this system serves: it stays (after boot-complete.target)
    trial.py failed      this system does not: the other one starts instead

What a newer gateway makes of its data an older one may not read, so data is copied aside before the new system's first
start (`begin`), and the copy takes its place again if the old system could not read what the new one left (`end`).
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

from files import write

DATA = Path("/data/sepa-edge")
TRIAL = Path("/data/rauc/trial")
"""There while an update is on trial: the boot loader's name for its slot, and the update's version."""
UNDONE = Path("/data/rauc/undone")
"""There when the last update was undone: its version."""
BEFORE = Path("/data/before-update")
"""The data as it was before the new system's first start."""
AFTER = Path("/data/of-undone-update")
"""The data that an update left which was undone, where the system before it cannot read it."""


def main(word: str) -> None:
    """What RAUC and the units tell."""
    if word == "installed":
        tried = version(os.environ["RAUC_BUNDLE_MOUNT_POINT"])
        write(TRIAL, f"{'B' if booted() == 'A' else 'A'} {tried}", "root", 0o644)
        UNDONE.unlink(missing_ok=True)
        shutil.rmtree(BEFORE, ignore_errors=True)
        shutil.rmtree(AFTER, ignore_errors=True)
    elif word == "good":
        rauc("mark-good", "booted")
        if UNDONE.exists():
            rauc("mark-bad", "other")
        TRIAL.unlink(missing_ok=True)
        shutil.rmtree(BEFORE, ignore_errors=True)
    elif word == "failed":
        rauc("mark-bad", "booted")
        subprocess.run(["systemctl", "--no-block", "reboot"], check=True)
    else:
        sys.exit(f"{word} is not known; there are installed, good and failed")


def begin() -> None:
    """In a system on trial, before anything touches the data: keep a copy, where there is room for one."""
    if on_trial()[0] != booted() or BEFORE.exists():
        return
    needed = sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file())
    if needed * 1.2 > shutil.disk_usage(DATA).free:
        print("no room for a copy of the data before the update is tried; it is tried without", file=sys.stderr)
        return
    new = BEFORE.with_name(BEFORE.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    subprocess.run(["cp", "--archive", DATA, new], check=True)
    os.sync()
    new.rename(BEFORE)


def end() -> str:
    """What to tell the owner where an update was undone; with data that this system can read, in any case."""
    slot, tried = on_trial()
    if slot and slot != booted():
        if BEFORE.exists() and formats(BEFORE) != formats(DATA):
            put_back()
        write(UNDONE, tried, "root", 0o644)
        TRIAL.unlink()
    if not UNDONE.exists():
        return ""
    aside = f"; its data is in {AFTER}" if AFTER.exists() else ""
    return f"update: {UNDONE.read_text()} was undone: it did not reach health{aside}"


def put_back() -> None:
    """The data of before the update; that of the update aside. Where this was interrupted, it goes on."""
    if any(DATA.iterdir()):
        shutil.rmtree(AFTER, ignore_errors=True)
        DATA.rename(AFTER)
    else:
        DATA.rmdir()
    BEFORE.rename(DATA)


def on_trial() -> tuple[str, str]:
    """Slot and version of the update that is on trial; nothing where none is."""
    slot, _, tried = (TRIAL.read_text() if TRIAL.exists() else "").partition(" ")
    return slot, tried


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


def rauc(mark: str, slot: str) -> None:
    """Tell the boot loader what a slot is worth."""
    subprocess.run(["rauc", "status", mark, slot], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(*sys.argv[1:])
