"""The clocks of a machine, under control of a test."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


@dataclass
class FakeClock:
    """Fake clocks. All times are in microseconds."""

    at: int = START
    """The wall clock of the machine."""
    up: int = 100 * SECOND
    """Time since the machine started."""
    boot: str = "first"
    right: bool = True

    def wall(self) -> int:
        return self.at

    def steady(self) -> int:
        return self.up

    def trusted(self) -> bool:
        return self.right

    def advance(self, seconds: float) -> None:
        """Let time pass while the machine runs."""
        self.at += int(seconds * SECOND)
        self.up += int(seconds * SECOND)

    def set(self, at: int, *, right: bool = True) -> None:
        """Set the wall clock."""
        self.at = at
        self.right = right

    def reboot(self, shows: int, *, right: bool) -> None:
        """Restart the machine. Its wall clock shows this time then."""
        self.boot += "+"
        self.up = 5 * SECOND
        self.set(shows, right=right)
