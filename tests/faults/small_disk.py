"""A small file system that is soon full."""

from __future__ import annotations

from pathlib import Path

SIZE = 5 * 1024 * 1024
"""Its size in bytes."""


class Disk:
    """A separate small file system."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self._ballast = place / "ballast"

    def fill(self) -> None:
        """Fill the disk completely."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def make_room(self) -> None:
        self._ballast.unlink()
