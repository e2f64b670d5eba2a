"""Renewal: replaces incremental evaluation for one large change that has many hits in a subscription.

Following such a change quad by quad would block the writer for 10 microseconds for each quad and subscription. So the
writer forks a process before it applies the change; this process finds the old result. After the commit the query is
evaluated like a first result: in a forked process, and merged in pieces. The subscribers then receive the difference
between the two results. Updates committed in the meantime are part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.queries.evaluator import World
from edge.engine.queries.query_plans import Member
from edge.engine.subscriptions.delta_evaluation import Changes
from edge.engine.subscriptions.plan_group import GroupTrigger, PlanGroup
from edge.engine.subscriptions.spu import IncrementalSpu, Spu
from edge.protocol.results import Row

MOST_HITS: Final = 20_000
"""Limit of hits that all subscriptions together follow: about 200 ms."""
_SMALL: Final = 8
"""Number of members up to which a plan group is renewed as a whole. Hits of larger groups are followed first."""
_MOST_OF_SMALL: Final = 500
"""Limit of hits of one small group that are followed."""
_FEW: Final = 50
"""Hits of a subscription that are always followed, because a renewal would take longer."""
_CELL: Final = 150
"""Approximate bytes of a cell in the old result."""


def chosen(hits: Mapping[GroupTrigger, Changes]) -> Iterator[IncrementalSpu]:
    """Yield the SPUs that a change with these hits renews: those with many hits, in groups with many hits."""
    costs: Counter[PlanGroup] = Counter()
    for entry, changes in hits.items():
        costs[entry.group] += len(changes)
    left = MOST_HITS
    # Groups with many members go first: following the change serves most subscriptions there.
    for group in sorted(costs, key=lambda group: len(group.members), reverse=True):
        cost = costs[group]
        if cost <= left and (cost <= _MOST_OF_SMALL or len(group.members) > _SMALL):
            left -= cost
            continue
        for spu, own in _own(group, hits).items():
            if own > _FEW and not spu.failure:
                yield spu


def _own(group: PlanGroup, hits: Mapping[GroupTrigger, Changes]) -> Counter[IncrementalSpu]:
    """Count the hits of each member of a plan group."""
    own: Counter[IncrementalSpu] = Counter()
    members = group.members
    for entry, changes in hits.items():
        if entry.group is not group:
            continue
        if entry.complete:
            for values, count in Counter([entry.deciding(quad) for quad, _ in changes]).items():
                if values in members:
                    own[members[values]] += count
        else:
            own.update(dict.fromkeys(members.values(), len(changes)))
    return own


class Renewal(Spu):
    """The subscribers of a query that is renewed, until they receive the difference."""

    __slots__ = ("query", "since")

    def __init__(self, query: Member, quota: ByteQuota) -> None:
        super().__init__(quota)
        self.query = query
        self.since: Mapping[Row, int] = {}
        """Rows that the subscribers have, each with its negative number of occurrences."""

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.query.plan.variables

    def has(self, since: Mapping[Row, int]) -> None:
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
        self.since = {}
        self.charge.release()
