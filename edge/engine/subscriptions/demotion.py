"""Demotion: an incremental subscription that an update makes too expensive is re-evaluated from then on.

Its subscribers have the result from before that update. The next notification must continue from there, but nothing
stores that result. So the engine forks a process in that state, which evaluates the query. After the commit, and when
the process has finished, the subscription is evaluated like any other without a delta rule: off the writer thread,
within the budget of its client. The first difference starts from the result of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edge.engine.faults import without_frames
from edge.engine.queries.evaluator import World
from edge.engine.queries.forked_evaluation import Child
from edge.engine.subscriptions.deferred_first_result import read_rows, write_rows
from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.protocol.bag import Bag
from edge.protocol.errors import EdgeError
from edge.protocol.results import Row

STEPS: Final = 50_000
"""Step budget of one update for one subscription: about 50 ms."""
STEPS_PER_QUAD: Final = 50
"""Additional steps for each quad that the update changes."""

REASON: Final = "An update took more steps for this query than one may, so it is re-evaluated within a budget"
"""Reason that `explain` shows for a demoted subscription."""

Pages = list[list[bytes]]
Rows = Bag[Row]


@dataclass(eq=False, slots=True)
class OldResults:
    """Results from before an update, which a forked process computes."""

    child: Child[list[Pages | EdgeError]]
    widths: Sequence[int]
    """Number of columns of each result."""
    sign: int = 1
    """Sign of the numbers of occurrences."""
    used: bool = False
    """Whether a thread waits for the process, or the process was ended."""
    waiting: list[tuple[ReevaluatedSpu | FullRefresh, Any]] = field(default_factory=list)
    """Subscriptions to demote or refresh, each with the effect of the update on it."""

    def read(self) -> list[Rows | EdgeError]:
        """Wait for the results, each of which may be an error. May run on any thread. Raises as `Child.result` does."""
        found = self.child.result()
        return [
            pages if isinstance(pages, EdgeError) else _rows(pages, width, self.sign)
            for pages, width in zip(found, self.widths, strict=True)
        ]


def evaluate(spus: Sequence[IncrementalSpu], world: World) -> list[Pages | EdgeError]:
    """Return the results of SPUs in the current state, or their errors. Runs in a forked process."""
    return [_result(spu, world) for spu in spus]


def _result(spu: IncrementalSpu, world: World) -> Pages | EdgeError:
    try:
        # As text, because ids of terms have no meaning outside this process.
        return write_rows(spu.result(world), world.graph.dictionary.terms, range(len(spu.variables)))
    except EdgeError as error:
        return without_frames(error)  # type: ignore[return-value]


def _rows(pages: Pages, width: int, sign: int) -> Rows:
    rows: Bag[Row] = Bag()
    for page in pages:
        for cells, count in read_rows(page, range(width)):
            rows.add(cells, sign * count)
    return rows
