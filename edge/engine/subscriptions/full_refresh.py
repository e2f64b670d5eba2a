"""Full refresh: replaces incremental evaluation for one large change that has many hits in a subscription.

Following such a change quad by quad would block the writer for 10 microseconds for each quad and subscription. So the
writer forks a process before it applies the change; this process finds the old result. After the commit the query is
evaluated like a first result: in a forked process, and merged in pieces. The subscribers then receive the difference
between the two results. Updates committed in the meantime are part of it.
"""

from __future__ import annotations

from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.queries.evaluator import World
from edge.engine.queries.query_plans import PlanMember
from edge.engine.subscriptions.spu import Spu
from edge.protocol.bag import Bag
from edge.protocol.results import Row

_CELL: Final = 150
"""Approximate bytes of a cell in the old result."""


class FullRefresh(Spu):
    """The subscribers of a query that is refreshed, until they receive the difference."""

    __slots__ = ("query", "since")

    def __init__(self, query: PlanMember, quota: ByteQuota) -> None:
        super().__init__(quota)
        self.query = query
        self.since: Bag[Row] = Bag()
        """Rows that the subscribers have, each with its negative number of occurrences."""

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.query.plan.variables

    def has(self, since: Bag[Row]) -> None:
        """Record the rows that the subscribers have."""
        self.since = since
        self.account(check=False)

    @property
    def held(self) -> int:
        """See `Spu`."""
        return _CELL * len(self.since) * max(1, len(self.variables))

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return len(self.since)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.since = Bag()
        self.charge.release()
