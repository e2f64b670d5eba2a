"""Variables that GRUB and RAUC share: the order of the slots, whether each is good, and its count of starts."""

from __future__ import annotations

from pathlib import Path

from sepa_edge_appliance.files import write_in_place

FILE = Path("/boot/efi/grubenv")
COPY = Path("/boot/efi/grubenv.copy")
"""The variables of the last good start. GRUB uses them if `FILE` has none (grub.cfg)."""
_HEAD = "# GRUB Environment Block\n"
_SIZE = 1024


def read(booted: str) -> dict[str, str]:
    """Return the variables.

    A power cut while RAUC writes them can leave an empty file. Then they are restored from the copy. Without a copy,
    both slots count as good, and the running one is first.
    """
    if found := _parse(FILE):
        return found
    order = "A B" if booted == "A" else "B A"
    found = _parse(COPY) or {"ORDER": order, "A_OK": "1", "A_TRY": "0", "B_OK": "1", "B_TRY": "0"}
    _write(found)
    return found


def clear_count(slot: str, booted: str) -> None:
    """Reset the count of failed starts of this slot."""
    variables = read(booted)
    if variables.get(f"{slot}_TRY") != "0":
        _write(variables | {f"{slot}_TRY": "0"})
    _copy()


def mark(slot: str, *, good: bool, booted: str) -> None:
    """Set whether the boot loader may choose this slot, and clear its count (`rauc status mark-good` and `mark-bad`).

    RAUC's own command empties the file before it writes it, so a power cut could lose the variables.
    """
    _write(read(booted) | {f"{slot}_OK": "1" if good else "0", f"{slot}_TRY": "0"})
    _copy()


def _parse(file: Path) -> dict[str, str]:
    """Return the variables in a file, or none if it is missing or damaged."""
    text = file.read_text(errors="replace") if file.exists() else ""
    if not text.startswith(_HEAD) or len(text) != _SIZE:
        return {}
    lines = text.removeprefix(_HEAD).rstrip("#").splitlines()
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def _write(variables: dict[str, str]) -> None:
    """Write the variables in place, as GRUB does, so that a power cut cannot leave the file system half written.

    All variables are in the first sector, so that the disk changes them in one write.
    """
    text = _HEAD + "".join(f"{name}={value}\n" for name, value in variables.items())
    write_in_place(FILE, text.ljust(_SIZE, "#").encode())


def _copy() -> None:
    """Bring the copy up to date. It follows the file, so one of the two is whole at any moment."""
    if _parse(COPY) != _parse(FILE):
        write_in_place(COPY, FILE.read_bytes())
