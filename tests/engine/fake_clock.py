"""A machine's clocks that a test turns."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@dataclass
class FakeClock:
    """All times in microseconds."""

    at: int = START
    """What the machine's clock shows."""
    up: int = 100 * SECOND
    """Since the machine started."""
    boot: str = "first"
    right: bool = True

    def wall(self) -> int:
        return self.at

    def steady(self) -> int:
        return self.up

    def trusted(self) -> bool:
        return self.right

    def advance(self, seconds: float) -> None:
        """Time passes while the machine runs."""
        self.at += int(seconds * SECOND)
        self.up += int(seconds * SECOND)

    def set(self, at: int, *, right: bool = True) -> None:
        """Somebody sets the clock."""
        self.at = at
        self.right = right

    def reboot(self, shows: int, *, right: bool) -> None:
        """The machine starts again, and this is what its clock shows."""
        self.boot += "+"
        self.up = 5 * SECOND
        self.set(shows, right=right)
