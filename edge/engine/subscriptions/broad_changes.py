"""Broad changes: updates with many hits, such as a window that slides, for which the whole plan may take fewer steps.

Each hit restricts the evaluation to the solutions that it can affect. If the patterns share no variable, or only one
that BIND computes, a restricted evaluation takes hardly fewer steps than that of all solutions.
"""

from __future__ import annotations

from typing import Final

BROAD: Final = 64
"""Hits from which an evaluation of the whole plan is tried."""
_STEPS: Final = 32
"""Steps of the attempt for each hit. The restricted evaluations take about as long, so a failure doubles the time."""
_LONGEST_PAUSE: Final = 63


class BroadChanges:
    """Whether the whole of one alternative of a plan group is tried. After failures, attempts become rare."""

    __slots__ = ("_known", "_pause", "_skipped")

    def __init__(self) -> None:
        self._pause = 0
        self._skipped = 0
        self._known = 0
        """Twice the steps of the whole plan, when the restricted evaluations took too many."""

    def steps(self, hits: int) -> int:
        """Return the most steps of an attempt; 0: no attempt. `hits`: at least `BROAD`."""
        if self._skipped < self._pause:
            self._skipped += 1
            return 0
        self._skipped = 0
        return max(_STEPS * hits, self._known)

    def tried(self, *, success: bool) -> None:
        """Report an attempt."""
        self._pause = 0 if success else min(2 * self._pause + 1, _LONGEST_PAUSE)

    def needed(self, steps: int) -> None:
        """Report that only the whole plan could be evaluated, in so many steps."""
        self._pause, self._known = 0, 2 * steps
