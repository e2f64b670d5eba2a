"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Twice as long each time, up to a limit, and half of it at random: many clients do not come back at once."""

    first: float = 0.2
    """Seconds before the second attempt."""

    most: float = 15.0
    """Seconds, never more."""

    def __iter__(self) -> Iterator[float]:
        wait = self.first
        while True:
            yield wait * random.uniform(0.5, 1.0)  # noqa: S311 - nobody has to guess it
            wait = min(2 * wait, self.most)
