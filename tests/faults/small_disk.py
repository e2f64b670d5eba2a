"""A file system of its own that is soon full."""

from __future__ import annotations

from pathlib import Path

SIZE = 5 * 1024 * 1024
"""Its bytes."""


class Disk:
    """A file system of its own."""

    def __init__(self, place: Path) -> None:
        self.data = place / "data"
        self._ballast = place / "ballast"

    def fill(self) -> None:
        """Not a byte is left."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def make_room(self) -> None:
        self._ballast.unlink()
