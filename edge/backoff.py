"""Exponential back-off with jitter: the wait before an attempt is repeated.

Half of each wait is random, so that many clients of one server do not come back at the same time after it restarts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_DOUBLINGS: Final = 30
"""Failures in a row from which the wait no longer grows: the power of two stays a small number."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Limits of the wait, which doubles with each failure."""

    first: float = 0.2
    """Longest wait after the first failure, in seconds."""

    most: float = 15.0
    """Longest wait after any failure, in seconds."""

    def __iter__(self) -> Iterator[float]:
        """Yield the waits after the first failure, the second one, and so on, in seconds."""
        retry = Retry(self)
        while True:
            yield retry.failed()

    def longest(self, failures: int) -> float:
        """Return the longest wait after one more failure than this number in a row, in seconds."""
        # The exponent is bounded as well: 2 ** failures of a month would be a number of many digits.
        return min(self.most, self.first * 2.0 ** min(failures, _DOUBLINGS))


class Retry:
    """Failures in a row of one activity. Not thread-safe."""

    __slots__ = ("_backoff", "_uniform", "failures")

    def __init__(self, backoff: Backoff, uniform: Callable[[float, float], float] | None = None) -> None:
        """`uniform` returns a random number between two others; None: `random.uniform`."""
        self._backoff = backoff
        self._uniform = random.uniform if uniform is None else uniform
        self.failures = 0

    def failed(self) -> float:
        """Count a failure. Returns the seconds to wait before the next attempt."""
        longest = self._backoff.longest(self.failures)
        self.failures += 1
        return self._uniform(longest / 2, longest)

    def succeeded(self) -> None:
        """Begin with the first wait again."""
        self.failures = 0
