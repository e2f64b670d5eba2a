"""Selection of readings for the history: all, only changes, and a maximum rate."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from edge.mapping.bounded_numbers import bounded_number


class ComparedReading(NamedTuple):
    """The parts of a reading that the selection compares."""

    value: str
    """Lexical form."""
    datatype: str
    unit: str | None
    time: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoreRules:
    """Selection rules of a mapping. A reading is stored unless a rule excludes it."""

    change: bool = False
    """Store only if the value differs from the last stored one."""
    dead_band: Decimal | None = None
    """For numbers: store only if the difference is at least this large."""
    at_most_every: Decimal | None = None
    """Minimum seconds between two stored readings."""

    def wants(self, reading: ComparedReading, last: ComparedReading | None) -> bool:
        """Whether to store a reading. `last`: the last stored one; None: it is not known."""
        if last is None:
            return True
        # The absolute difference: a device whose clock was set back must not suspend the storage.
        if self.at_most_every is not None and abs(reading.time - last.time) < self.at_most_every * 1_000_000:
            return False
        if not self.change:
            return True
        # Values of different units cannot be compared.
        if (reading.datatype, reading.unit) != (last.datatype, last.unit):
            return True
        if self.dead_band is not None:
            numbers = bounded_number(reading.value), bounded_number(last.value)
            if numbers[0] is not None and numbers[1] is not None:
                return abs(numbers[0] - numbers[1]) >= self.dead_band
        return reading.value != last.value

    def __str__(self) -> str:
        """Describe the rules in words."""
        words = "on change" if self.change else "all"
        if self.dead_band is not None:
            words = f"on a change of {self.dead_band} or more"
        return words if self.at_most_every is None else f"{words}, at most every {self.at_most_every} s"
