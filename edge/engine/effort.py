"""Effort: how long an evaluation may go on that everything else waits for.

Steps are counted, not timed, so a request fares the same on every machine and each time that it is replayed.
"""

from __future__ import annotations

import sys
from typing import Final

from edge.protocol.errors import ResultTooLarge

MAX_STEPS: Final = 5_000_000
"""Steps of one evaluation, unless the operator says otherwise: some seconds."""


class Effort:
    """The steps that the evaluation which runs has left.

    A step is a look-up of a triple pattern, each triple that it finds if there are several, a row of VALUES, and each
    call of an expression but the first.
    """

    __slots__ = ("left", "most")

    def __init__(self, most: int = MAX_STEPS) -> None:
        self.most = most
        self.left = most
        """Take from it one by one where `spend` would be too slow. It may be below zero until the next `spend`."""

    def begin(self) -> None:
        """An evaluation begins."""
        self.left = self.most

    def lift(self) -> None:
        """What runs until the next `begin` must not stop half way."""
        self.left = sys.maxsize

    def spend(self, steps: int) -> None:
        """Take steps. Raises `ResultTooLarge` if there are none left."""
        self.left -= steps
        if self.left < 0:
            raise self.spent()

    def spent(self) -> ResultTooLarge:
        """The error for what takes too many steps."""
        return ResultTooLarge(
            f"More than {self.most} steps (engine.max_steps) to find the solutions; are there patterns that share no "
            "variable, or long lists of values? Ask for less, or change it in parts"
        )
