"""What GRUB and RAUC tell each other: the order of the slots, whether each is good, and how often it was tried."""

from __future__ import annotations

from pathlib import Path

from files import write as write_file
from files import write_in_place

FILE = Path("/boot/efi/grubenv")
ORDER = Path("/data/rauc/order")
"""The order of the slots at the last start that was a good one."""
_HEAD = "# GRUB Environment Block\n"
_SIZE = 1024


def read(booted: str) -> dict[str, str]:
    """The variables. RAUC's way of writing them leaves an empty file behind when the power fails: then those of a box
    that trusts both slots, in the order that they had, or with the one first that runs."""
    text = FILE.read_text(errors="replace") if FILE.exists() else ""
    if not text.startswith(_HEAD) or len(text) != _SIZE:
        order = ORDER.read_text() if ORDER.exists() else "A B" if booted == "A" else "B A"
        found = {"ORDER": order, "A_OK": "1", "A_TRY": "0", "B_OK": "1", "B_TRY": "0"}
        _write(found)
        return found
    lines = text.removeprefix(_HEAD).rstrip("#").splitlines()
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def clear_count(slot: str, booted: str) -> None:
    """This slot has no try behind it that was in vain."""
    variables = read(booted)
    if variables.get(f"{slot}_TRY") != "0":
        _write(variables | {f"{slot}_TRY": "0"})
    write_file(ORDER, variables.get("ORDER", booted), "root", 0o644)


def mark(slot: str, *, good: bool, booted: str) -> None:
    """Say whether the boot loader may choose this slot, and clear its count (`rauc status mark-good` and `mark-bad`).

    RAUC's own command empties the file before it writes it, so a power cut could lose the variables.
    """
    _write(read(booted) | {f"{slot}_OK": "1" if good else "0", f"{slot}_TRY": "0"})


def _write(variables: dict[str, str]) -> None:
    """Where it stands, as GRUB does it itself: a file system that could be half written is not touched.

    All variables are in the first sector, so that the change is one write of the disk's.
    """
    text = _HEAD + "".join(f"{name}={value}\n" for name, value in variables.items())
    write_in_place(FILE, text.ljust(_SIZE, "#").encode())
