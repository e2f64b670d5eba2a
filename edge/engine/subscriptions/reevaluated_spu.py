"""Re-evaluated SPU: evaluated after each commit that matches its watches in the LUTT (see `reevaluation`).

It holds its last result as text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.query_plans import PlanMember, Singular
from edge.engine.queries.subscription_index import Dependencies, Key
from edge.engine.subscriptions.known_result import KnownResult
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.spu import Spu


@dataclass(slots=True)
class Usage:
    """Cost of the evaluations of one query so far."""

    evaluations: int = 0
    seconds: float = 0.0
    merged: int = 0
    """Committed states that were skipped, because a later commit came before the evaluation started."""
    delay: float = 0.0
    """Seconds from the last relevant commit to the start of its evaluation."""


class ReevaluatedSpu(Spu):
    """An SPU without incremental evaluation: it is evaluated after commits that match its watches.

    The flags (`stale`, `busy`, `pending` and others) belong to `Reevaluation` and its lock. The known result belongs to
    the running evaluation.
    """

    __slots__ = (
        *("at", "busy", "clients", "depends", "ended", "evaluator", "pending", "known", "marked_at", "query"),
        *("demoted", "stale", "usage", "waiting"),
    )

    def __init__(self, query: Singular, evaluator: Evaluator, quota: ByteQuota) -> None:
        super().__init__(quota)
        self.query = query
        self.evaluator = evaluator
        self.demoted: PlanMember | None = None
        """The query with its incremental plan before the demotion; None if it never had one."""
        self.known = KnownResult(evaluator)
        self.depends = Dependencies((), graph_names=False)
        """Dependencies that are currently watched."""
        self.clients: Counter[str] = Counter()
        """Number of subscribers of each client."""
        self.waiting = 0
        """Number of new subscribers without a result."""
        self.usage = Usage()
        self.stale = False
        """Whether a committed update affects the result and no evaluation has started since."""
        self.at = 0
        """Engine time of that update."""
        self.marked_at = 0.0
        """Time at which it became stale, in seconds of the evaluation clock."""
        self.busy = False
        """Whether it is queued, is being evaluated, or has an outcome that is not delivered."""
        self.ended = False
        self.pending: list[PendingSubscriber] = []

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.known.variables

    def keys(self, world: World) -> list[Key]:
        """Return its keys in the LUTT."""
        return [watch.key(world.graph) for watch in self.depends.watches]

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return len(self.known)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.ended = True
        self.charge.release()
