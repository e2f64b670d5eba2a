"""Effort: how long an evaluation may go on that everything else waits for.

Steps are counted, not timed, so a request fares the same on every machine and each time that it is replayed.
"""

from __future__ import annotations

import sys
from typing import Final

from edge.protocol.errors import ResultTooLarge

MAX_STEPS: Final = 5_000_000
"""Steps of one evaluation, unless the operator says otherwise: some seconds."""
MAX_TEXT: Final = 10_000_000
"""Characters of a text that an expression makes, unless the operator says otherwise."""

_READ: Final = 512
"""Characters that are read in a step."""
_MADE: Final = 32
"""Characters that are made in a step: they also take memory, until the evaluation ends."""


class StepBudget:
    """The steps that the evaluation which runs has left.

    A step is a look-up of a triple pattern, each triple that it finds if there are several, a row of VALUES, each
    call of an expression but the first, and so many characters of a text that is read or made.
    """

    __slots__ = ("left", "max_text", "most", "refusal")

    def __init__(self, most: int = MAX_STEPS, max_text: int = MAX_TEXT) -> None:
        self.most = most
        self.max_text = max_text
        self.left = most
        """Take from it one by one where `spend` would be too slow. It may be below zero until the next `spend`."""
        self.refusal: ResultTooLarge | None = None
        """What was not allowed to what must not stop. Whoever lifts the limit clears it and looks at it afterwards."""

    def begin(self, limit: int | None = None) -> None:
        """An evaluation begins. `limit`: fewer steps than it may take elsewhere."""
        self.left = self.most if limit is None else min(limit, self.most)

    def lift(self) -> None:
        """What runs until the next `begin` must not stop half way."""
        self.left = sys.maxsize

    def spend(self, steps: int) -> None:
        """Take steps. Raises `ResultTooLarge` if there are none left."""
        self.left -= steps
        if self.left < 0:
            raise self.spent()

    def read(self, length: int) -> None:
        """Take the steps of reading a text of so many characters."""
        self.left -= self.reading(length)

    def reading(self, length: int) -> int:
        """These steps."""
        return length // _READ

    def may_make(self, length: int) -> bool:
        """Whether a text of so many characters may be made; its steps are taken.

        It is asked before the text is made, which nothing can stop. Raises `ResultTooLarge` if it may not; what must
        not stop is told so, and has no value then.
        """
        if length > self.max_text:
            return self._refuse(
                ResultTooLarge(
                    f"A function makes a text of more than {self.max_text} characters (engine.max_text); ask for less"
                )
            )
        return self.may_take(length // _MADE)

    def may_take(self, steps: int) -> bool:
        """The same of a call that takes so many steps, and cannot be stopped either."""
        if steps > self.most:
            return self._refuse(self.spent())
        self.spend(steps)
        return True

    def _refuse(self, error: ResultTooLarge) -> bool:
        if self.left <= self.most:
            raise error
        self.refusal = error
        return False

    def spent(self) -> ResultTooLarge:
        """The error for what takes too many steps."""
        return ResultTooLarge(
            f"More than {self.most} steps (engine.max_steps) to find the solutions; are there patterns that share no "
            "variable, long lists of values, or long texts? Ask for less, or change it in parts"
        )
