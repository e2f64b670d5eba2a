"""Output of a backtest."""

from __future__ import annotations

from typing import Literal, NamedTuple

from edge.protocol.results import Row

Kind = Literal["added", "removed", "reported", "began", "ended", "failed"]


class Change(NamedTuple):
    """One row of a notification or a report, or a step of a rule."""

    time: int
    """Simulated time in microseconds since 1970; of a report, the time of which it is the result."""
    number: int
    """Sequence number of the notification or report, or of the rule's situation. 0: the first result of a query."""
    kind: Kind
    """`added`, `removed`: rows of a notification. `reported`: a row of a report. `began`, `ended`: a situation.

    `failed`: an update of a rule failed.
    """
    row: Row
    """Terms in the order of the variables; None: unbound."""
