"""Step budget: limits how long an evaluation can block everything else.

It counts steps, not time. So a request has the same outcome on every machine and at every replay.
"""

from __future__ import annotations

import sys
from typing import Final

from edge.protocol.errors import ResultTooLarge

MAX_STEPS: Final = 5_000_000
"""Default limit of the steps of one evaluation: some seconds."""
MAX_TEXT: Final = 10_000_000
"""Default limit of the characters of a text that an expression creates."""

_READ: Final = 512
"""Characters that are read in one step."""
_MADE: Final = 32
"""Characters that are created in one step. They also take memory until the evaluation ends."""


class StepBudget:
    """Steps that the running evaluation has left.

    Each of these takes one step: a look-up of a triple pattern, each found triple if there are several, a row of
    VALUES, each call of an expression except the first, and a fixed number of characters that are read or created.
    """

    __slots__ = ("left", "max_text", "most", "refusal")

    def __init__(self, most: int = MAX_STEPS, max_text: int = MAX_TEXT) -> None:
        self.most = most
        self.max_text = max_text
        self.left = most
        """Inner loops decrement and check it directly, where `spend` would be too slow."""
        self.refusal: ResultTooLarge | None = None
        """The error that could not be raised while the limit was lifted. The caller of `lift` clears and checks it."""

    def begin(self, limit: int | None = None) -> None:
        """Start an evaluation. `limit`: fewer steps than the default limit."""
        self.left = self.most if limit is None else min(limit, self.most)

    def lift(self) -> None:
        """Remove the limit until the next `begin`, for work that must not stop half way."""
        self.left = sys.maxsize

    def spend(self, steps: int) -> None:
        """Take steps. Raises `ResultTooLarge` if none are left."""
        self.left -= steps
        if self.left < 0:
            raise self.spent()

    def read(self, length: int) -> None:
        """Take the steps for reading a text of `length` characters."""
        self.left -= self.reading(length)

    def reading(self, length: int) -> int:
        """Return the steps for reading a text of `length` characters."""
        return length // _READ

    def may_make(self, length: int) -> bool:
        """Return whether a text of `length` characters may be created, and take its steps.

        Call it before the text is created, since nothing can stop that. Raises `ResultTooLarge` if the text is too
        long. While the limit is lifted it returns False instead, and the expression has no value.
        """
        if length > self.max_text:
            return self._refuse(
                ResultTooLarge(
                    f"A function makes a text of more than {self.max_text} characters (engine.max_query_memory); ask "
                    "for less"
                )
            )
        return self.may_take(length // _MADE)

    def may_take(self, steps: int) -> bool:
        """Return whether an uninterruptible call may take `steps` steps, and take them. Errors as in `may_make`."""
        if steps > self.most:
            return self._refuse(self.spent())
        self.spend(steps)
        return True

    def _refuse(self, error: ResultTooLarge) -> bool:
        # `left` exceeds `most` only while the limit is lifted.
        if self.left <= self.most:
            raise error
        self.refusal = error
        return False

    def spent(self) -> ResultTooLarge:
        """Return the error for too many steps."""
        return ResultTooLarge(
            f"More than {self.most} steps (engine.max_steps) to find the solutions; are there patterns that share no "
            "variable, long lists of values, or long texts? Ask for less, or change it in parts"
        )
