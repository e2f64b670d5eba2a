"""Renewal: an incremental subscription that a large change hits in many places begins anew.

To follow such a change quad by quad would hold up the writer for 10 microseconds for each quad and subscription. So
before the change is applied a process is forked, which finds the result that the subscribers have. When the change is
committed the query is evaluated like a first result, in a forked process and taken in in pieces, and the subscribers
are told the difference between the two. Until then they wait. Updates that are committed meanwhile are part of it.
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
"""Hits that all subscriptions together follow: about 200 ms."""
_SMALL: Final = 8
"""Members up to which a family begins anew as a whole. Hits of larger ones are followed before those of others."""
_MOST_OF_SMALL: Final = 500
"""Hits of one small family that are followed."""
_FEW: Final = 50
"""Hits that are always followed: to begin anew takes longer."""
_CELL: Final = 150
"""Bytes that a cell of a kept result takes, about."""


def chosen(hits: Mapping[GroupTrigger, Changes]) -> Iterator[IncrementalSpu]:
    """The SPUs that begin anew where a change hits these triggers: those with many hits, in families with many."""
    costs: Counter[PlanGroup] = Counter()
    for entry, changes in hits.items():
        costs[entry.family] += len(changes)
    left = MOST_HITS
    for family in sorted(costs, key=lambda family: len(family.members), reverse=True):
        cost = costs[family]
        if cost <= left and (cost <= _MOST_OF_SMALL or len(family.members) > _SMALL):
            left -= cost
            continue
        for spu, own in _own(family, hits).items():
            if own > _FEW and not spu.failure:
                yield spu


def _own(family: PlanGroup, hits: Mapping[GroupTrigger, Changes]) -> Counter[IncrementalSpu]:
    """Hits of each member of a family."""
    own: Counter[IncrementalSpu] = Counter()
    members = family.members
    for entry, changes in hits.items():
        if entry.family is not family:
            continue
        if entry.complete:
            for values, count in Counter([entry.deciding(quad) for quad, _ in changes]).items():
                if values in members:
                    own[members[values]] += count
        else:
            own.update(dict.fromkeys(members.values(), len(changes)))
    return own


class Renewal(Spu):
    """The subscribers of a query that begins anew, until they are told what has changed."""

    __slots__ = ("query", "since")

    def __init__(self, query: Member, quota: ByteQuota) -> None:
        super().__init__(quota)
        self.query = query
        self.since: Mapping[Row, int] = {}
        """The rows that the subscribers have, each with minus how often it occurs."""

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.query.plan.variables

    def has(self, since: Mapping[Row, int]) -> None:
        """Note the rows that the subscribers have."""
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
