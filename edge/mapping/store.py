"""Which readings are stored for the history: all, those that say something new, and how often at the most."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import NamedTuple


class Said(NamedTuple):
    """What a reading says, as far as it matters for this."""

    value: str
    """The lexical form."""
    datatype: str
    unit: str | None
    time: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Store:
    """What a mapping says of its readings. They are stored unless something here is against it."""

    change: bool = False
    """Only where the value is another than the one that was stored last."""
    dead_band: Decimal | None = None
    """For numbers: only where it differs by so much at least."""
    at_most_every: Decimal | None = None
    """Seconds that must be between the times of two that are stored."""

    def wants(self, said: Said, last: Said | None) -> bool:
        """Whether a reading is stored. `last`: the one that was stored last; None: it is not known."""
        if last is None:
            return True
        if self.at_most_every is not None and abs(said.time - last.time) < self.at_most_every * 1_000_000:
            return False
        if not self.change:
            return True
        if (said.datatype, said.unit) != (last.datatype, last.unit):
            return True
        if self.dead_band is not None:
            numbers = _number(said.value), _number(last.value)
            if numbers[0] is not None and numbers[1] is not None:
                return abs(numbers[0] - numbers[1]) >= self.dead_band
        return said.value != last.value

    def __str__(self) -> str:
        """In words."""
        words = "on change" if self.change else "all"
        if self.dead_band is not None:
            words = f"on a change of {self.dead_band} or more"
        return words if self.at_most_every is None else f"{words}, at most every {self.at_most_every} s"


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
