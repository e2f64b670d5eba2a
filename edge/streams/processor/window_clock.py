"""The time of the windows, which does not decrease, and the clock of the machine, which can be set back."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger(__name__)
_SECOND: Final = 1_000_000
_BEHIND: Final = 10 * _SECOND
"""Time by which a clock that was set back is not worth a message."""


class WindowClock:
    """The time of the windows, in microseconds since 1970."""

    def __init__(self, time: int) -> None:
        self.time = time
        """Time up to which all windows have reported."""
        self.behind = 0
        """Microseconds by which the clock of the machine was set back; 0 if it is not worth a message."""

    def compare(self, now: int) -> None:
        """Compare the clock of the machine. Log once that it was set back."""
        was, self.behind = self.behind, max(self.time - now, 0)
        if self.behind <= _BEHIND:
            self.behind = 0
        elif not was:
            _log.warning("streams.clock_set_back", extra={"seconds": self.behind // _SECOND})

    @property
    def problem(self) -> str:
        """Why no window reports; empty if they do."""
        if not self.behind:
            return ""
        return (
            f"The clock of this machine was set back by {self.behind // _SECOND:,} s: windows on streams report again "
            "when it has caught up. Set the clock"
        )
