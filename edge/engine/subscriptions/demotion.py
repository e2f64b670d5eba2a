"""Demotion: an incremental subscription that an update makes too expensive is re-evaluated from then on.

The subscribers have the result of the state before that update. The next notification must lead on from there, and
nothing keeps that result. So a process is forked in that state, which evaluates the query. When it has the result, and
the update is committed, the subscription is evaluated like any other without a delta rule: off the writer, within the
budget of its client. The first difference is that to the result of the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edge.engine.faults import without_frames
from edge.engine.queries.evaluator import World
from edge.engine.queries.forked_evaluation import Child
from edge.engine.subscriptions.beginning import read_rows, write_rows
from edge.engine.subscriptions.renewal import Renewal
from edge.engine.subscriptions.spu import IncrementalSpu, ReevaluatedSpu
from edge.protocol.errors import EdgeError
from edge.protocol.results import Row

STEPS: Final = 50_000
"""Steps that one update may take for one subscription: about 50 ms."""
STEPS_PER_QUAD: Final = 50
"""Such steps more for each quad that the update changes."""

REASON: Final = "An update took more steps for this query than one may, so it is re-evaluated within a budget"
"""What `explain` says of a subscription that was demoted."""

Pages = list[list[bytes]]
Rows = Mapping[Row, int]


@dataclass(eq=False, slots=True)
class OldResults:
    """The results that subscriptions have from before one update, as a forked process finds them."""

    child: Child[list[Pages | EdgeError]]
    widths: Sequence[int]
    """How many columns each has."""
    sign: int = 1
    """-1: each row comes with minus how often it occurs."""
    used: bool = False
    """Whether the process is waited for, or was ended."""
    waiting: list[tuple[ReevaluatedSpu | Renewal, Any]] = field(default_factory=list)
    """Those that are demoted or begin anew, and what the update did to each."""

    def read(self) -> list[Rows | EdgeError]:
        """Wait for the results, or for the reasons why there are none. Any thread. Raises as `Child.result` does."""
        found = self.child.result()
        return [
            pages if isinstance(pages, EdgeError) else _rows(pages, width, self.sign)
            for pages, width in zip(found, self.widths, strict=True)
        ]


def evaluate(spus: Sequence[IncrementalSpu], world: World) -> list[Pages | EdgeError]:
    """The results of SPUs in the state of now, or why there are none. Runs in a forked process."""
    return [_result(spu, world) for spu in spus]


def _result(spu: IncrementalSpu, world: World) -> Pages | EdgeError:
    try:
        return write_rows(spu.result(world), world.graph.dictionary.terms, range(len(spu.variables)))
    except EdgeError as error:
        return without_frames(error)  # type: ignore[return-value]


def _rows(pages: Pages, width: int, sign: int) -> Rows:
    rows: Counter[Row] = Counter()
    for page in pages:
        for cells, count in read_rows(page, range(width)):
            rows[cells] += sign * count
    return rows
