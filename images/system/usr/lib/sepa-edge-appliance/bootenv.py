"""What GRUB and RAUC tell each other: the order of the slots, whether each is good, and how often it was tried."""

from __future__ import annotations

from pathlib import Path

from files import write_in_place

FILE = Path("/boot/efi/grubenv")
COPY = Path("/boot/efi/grubenv.copy")
"""The variables of the last start that was a good one. GRUB uses them where `FILE` has none (grub.cfg)."""
_HEAD = "# GRUB Environment Block\n"
_SIZE = 1024


def read(booted: str) -> dict[str, str]:
    """Return the variables.

    RAUC's way of writing them leaves an empty file behind when the power fails. They are restored then: from the copy,
    or else as those of a box that trusts both slots, with the one first that runs.
    """
    if found := _parse(FILE):
        return found
    order = "A B" if booted == "A" else "B A"
    found = _parse(COPY) or {"ORDER": order, "A_OK": "1", "A_TRY": "0", "B_OK": "1", "B_TRY": "0"}
    _write(found)
    return found


def clear_count(slot: str, booted: str) -> None:
    """This slot has no try behind it that was in vain."""
    variables = read(booted)
    if variables.get(f"{slot}_TRY") != "0":
        _write(variables | {f"{slot}_TRY": "0"})
    _copy()


def mark(slot: str, *, good: bool, booted: str) -> None:
    """Say whether the boot loader may choose this slot, and clear its count (`rauc status mark-good` and `mark-bad`).

    RAUC's own command empties the file before it writes it, so a power cut could lose the variables.
    """
    _write(read(booted) | {f"{slot}_OK": "1" if good else "0", f"{slot}_TRY": "0"})
    _copy()


def _parse(file: Path) -> dict[str, str]:
    """The variables in a file; none where it is missing or damaged."""
    text = file.read_text(errors="replace") if file.exists() else ""
    if not text.startswith(_HEAD) or len(text) != _SIZE:
        return {}
    lines = text.removeprefix(_HEAD).rstrip("#").splitlines()
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def _write(variables: dict[str, str]) -> None:
    """Where it stands, as GRUB does it itself: a file system that could be half written is not touched.

    All variables are in the first sector, so that the change is one write of the disk's.
    """
    text = _HEAD + "".join(f"{name}={value}\n" for name, value in variables.items())
    write_in_place(FILE, text.ljust(_SIZE, "#").encode())


def _copy() -> None:
    """Bring the copy up to date. It follows the file, so one of the two is whole at any moment."""
    if _parse(COPY) != _parse(FILE):
        write_in_place(COPY, FILE.read_bytes())
