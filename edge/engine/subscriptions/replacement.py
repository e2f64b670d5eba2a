"""Replacement of SPUs for which an update is too expensive, see `demotion` and `full_refresh`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.faults import Incidents
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import COUNTED_LIMIT
from edge.engine.queries.query_plans import QueryPlans, Singular
from edge.engine.queries.subscription_index import Ids
from edge.engine.requests import ActiveSubscription
from edge.engine.store.transaction import Transaction
from edge.engine.store.triple_index import Quad
from edge.engine.subscriptions import demotion
from edge.engine.subscriptions.activation import Activation
from edge.engine.subscriptions.delivery import NotificationDelivery
from edge.engine.subscriptions.delta_evaluation import Changes
from edge.engine.subscriptions.demotion import OldResults, Rows
from edge.engine.subscriptions.first_results import DEMOTIONS, FirstResults, PendingFirstResult
from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.plan_group import GroupTrigger, PlanGroup
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.engine.subscriptions.reevaluation import Reevaluation
from edge.engine.subscriptions.spu import Subscriber
from edge.engine.subscriptions.spu_registry import SpuRegistry
from edge.protocol.errors import EdgeError, NotReady, ResultTooLarge

_MOST_HITS: Final = 20_000
"""Limit of hits of a large change that all subscriptions together follow: about 200 ms."""
_SMALL_GROUP: Final = 8
"""Number of members up to which a plan group is refreshed as a whole. Hits of larger groups are followed first."""
_MOST_OF_SMALL: Final = 500
"""Limit of hits of one small group that are followed."""
_FEW_HITS: Final = 50
"""Hits of a subscription that are always followed, because a full refresh would take longer."""


class Replacement:
    """Demotions and refreshes of one engine."""

    def __init__(
        self,
        world: World,
        registry: SpuRegistry,
        delivery: NotificationDelivery,
        first_results: FirstResults,
        reevaluation: Reevaluation,
        plans: QueryPlans,
        quota: ByteQuota,
    ) -> None:
        """`quota` is charged for the results."""
        self._world = world
        self._registry = registry
        self._delivery = delivery
        self._first_results = first_results
        self._reevaluation = reevaluation
        self._plans = plans
        self._quota = quota
        self.processes = 0
        """Number of processes that find results from before an update."""
        self.replaced: Callable[[str], None] = lambda spuid: None
        """Called with the spuid of a subscription that is demoted or refreshed."""

    def steps(self, transaction: Transaction) -> int | None:
        """Return the step budget of an update for one subscription; None, for no limit of its own, without demotion."""
        if self._first_results.steps is None or self.processes >= DEMOTIONS:  # as `_can_demote`, for each update
            return None
        return demotion.STEPS + demotion.STEPS_PER_QUAD * len(transaction.quads)

    @property
    def _can_demote(self) -> bool:
        """Whether a process may be forked for a demotion."""
        return self._first_results.steps is not None and self.processes < DEMOTIONS

    def detach_large(self, quads: Mapping[Quad, bool], ids: Ids) -> list[Activation]:
        """Detach the SPUs with many hits of a large change, before the change is applied to the graph.

        `notify` refreshes them after the commit; `undo` attaches them again.
        """
        if self._first_results.steps is None:
            return []
        spus = list(_costly_members(self._registry.triggers.hits(quads, ids)))
        begun = [spu for spu in spus if spu.begun]
        old = self._old_results(begun, sign=-1) if begun else None
        if old is None:  # without a process the change updates them incrementally
            spus = [spu for spu in spus if not spu.begun]
        for spu in spus:
            self._registry.detach(spu)
        return [
            Activation(spu, refreshes=True, old=old, number=begun.index(spu))
            if spu.begun
            else Activation(spu, refreshes=True)
            for spu in spus
        ]

    def begin_demotion(self, transaction: Transaction, activations: Iterable[Activation]) -> None:
        """Fork a process that finds the old results of the SPUs to demote, if that is possible."""
        if not self._can_demote:
            return
        exceeded = [(each, each.spu) for each in activations if each.exceeded]
        spus = [spu for _, spu in exceeded if isinstance(spu, IncrementalSpu) and spu.begun and not spu.half_moved]
        if not spus:
            return
        with transaction.reverted():
            old = self._old_results(spus)
        if old is None:  # the subscriptions end instead
            return
        for activation, spu in exceeded:
            if spu in spus:
                activation.old, activation.number = old, spus.index(spu)

    def _old_results(self, spus: Sequence[IncrementalSpu], sign: int = 1) -> OldResults | None:
        """Fork a process that finds the current results. Return None if no process can be started."""
        world = self._world
        if not self._can_demote:
            return None
        try:
            child = world.forked.begin(
                lambda: demotion.evaluate(spus, world), world.rules.settings.query_timeout, COUNTED_LIMIT
            )
        except EdgeError:
            return None
        self.processes += 1
        return OldResults(child, [len(spu.variables) for spu in spus], sign)

    def refresh(self, spu: IncrementalSpu, activation: Activation) -> None:
        """End an SPU, and have its query evaluated again for its subscribers."""
        wanted: list[PendingSubscriber] = []
        for deferred in list(spu.deferred_results):
            wanted += deferred.pending
            deferred.pending.clear()
            spu.abandon(self._world, deferred)
        old = activation.old
        if spu.subscribers and old is not None:
            refresh = FullRefresh(spu.query, self._quota)
            for spuid, subscriber in spu.subscribers.items():
                self._registry.enter(refresh, subscriber)
                self.replaced(spuid)
            spu.subscribers.clear()
            self._registry.refreshes[refresh] = None
            old.waiting.append((refresh, activation))
            self._fetch(old, next(iter(refresh.subscribers.values())).client)
        self._registry.release(spu)
        for pending in wanted:
            self._first_results.put(PendingFirstResult(spu.query, pending))

    def demote(self, spu: IncrementalSpu, activation: Activation, incidents: Incidents) -> None:
        """Replace an incremental SPU by a re-evaluated one."""
        old, reason = activation.old, activation.failure
        assert old is not None  # noqa: S101
        for deferred in list(spu.deferred_results):
            self._delivery.abandon(spu, deferred, ResultTooLarge(reason))
        if not spu.subscribers:
            return
        try:
            query = Singular(spu.query.request, demotion.REASON)
            new = ReevaluatedSpu(query, self._plans.evaluator(query), self._quota)
        except Exception as error:  # noqa: BLE001  the fault of one query must not affect the others
            self._delivery.end(spu, incidents.reason(error, "updating"))
            return
        new.demoted, new.busy = spu.query, True  # busy: no evaluation may start before its old result is known
        new.known.variables = spu.variables
        for spuid, subscriber in spu.subscribers.items():
            self._registry.enter(new, subscriber)
            new.clients[subscriber.client] += 1
            self.replaced(spuid)
        spu.subscribers.clear()
        self._registry.end_idle(spu)
        self._registry.add(new)
        old.waiting.append((new, activation))
        self._fetch(old, min(new.clients, default=GATEWAY))

    def end_unwanted(self, activations: Iterable[Activation]) -> None:
        """End the processes of demotions and refreshes that do not take place."""
        for activation in activations:
            if activation.old is not None and not activation.old.used:
                activation.old.used = True
                activation.old.child.end()
                self.processes -= 1

    def _fetch(self, old: OldResults, client: str) -> None:
        """Start to read results from before an update, once."""
        if not old.used:
            old.used = True
            self._first_results.fetch(client, old.read, partial(self._go_on, old.waiting))

    def _go_on(
        self,
        waiting: Sequence[tuple[ReevaluatedSpu | FullRefresh, Activation]],
        found: Sequence[Rows | EdgeError] | Exception,
    ) -> None:
        """Continue demotions and refreshes after their old results were read."""
        # One forked process serves all of them, so it counts once.
        self.processes -= 1
        for spu, activation in waiting:
            result = found if isinstance(found, Exception) else found[activation.number]
            if isinstance(spu, FullRefresh):
                if isinstance(result, Exception):
                    self._refresh_over(spu, result)
                else:
                    self._start_refresh(spu, result)
                continue
            if spu.ended:
                continue
            if isinstance(result, Exception):
                self._refuse_demoted(spu, result, activation.failure)
                continue
            spu.known.go_on(spu.variables, result)
            self._reevaluation.mark(spu, activation.at)
            self._reevaluation.delivered(spu)

    def _start_refresh(self, refresh: FullRefresh, since: Rows) -> None:
        if not refresh.subscribers:
            self._registry.end_refresh(refresh)
        else:
            refresh.has(since)
            client = next(iter(refresh.subscribers.values())).client
            # A placeholder: the subscribers of the refresh get the difference, not a first result.
            nobody = Subscriber("", None, lambda _: None, client=client)
            pending = PendingSubscriber(nobody, partial(self._refresh_over, refresh), refresh=refresh)
            self._first_results.put(PendingFirstResult(refresh.query, pending))

    def _refresh_over(self, refresh: FullRefresh, outcome: ActiveSubscription | Exception) -> None:
        """End the subscribers of a failed refresh, unless it failed because the engine stops."""
        if isinstance(outcome, Exception) and not isinstance(outcome, NotReady):
            reason = Incidents().reason(outcome, "updating")
            for subscriber in list(refresh.subscribers.values()):
                subscriber.fail(reason)
                self._registry.destroy(subscriber.spuid)
            self._registry.end_refresh(refresh)

    def _refuse_demoted(self, spu: ReevaluatedSpu, error: Exception, reason: str) -> None:
        self._delivery.end(spu, reason)
        for pending in self._reevaluation.give_up(spu):
            spu.waiting -= 1
            pending.ready(error)
        self._registry.end_unused(spu)


def _costly_members(hits: Mapping[GroupTrigger[IncrementalSpu], Changes]) -> Iterator[IncrementalSpu]:
    """Yield the SPUs that a change with these hits refreshes: those with many hits, in groups with many hits.

    To follow the change in them would block the writer too long.
    """
    costs: Counter[PlanGroup[IncrementalSpu]] = Counter()
    for entry, changes in hits.items():
        costs[entry.group] += len(changes)
    left = _MOST_HITS
    # Groups with many members go first: following the change serves most subscriptions there.
    for group in sorted(costs, key=lambda group: len(group.members), reverse=True):
        cost = costs[group]
        if cost <= left and (cost <= _MOST_OF_SMALL or len(group.members) > _SMALL_GROUP):
            left -= cost
            continue
        for spu, own in _hits_of_members(group, hits).items():
            if own > _FEW_HITS and not spu.failure:
                yield spu


def _hits_of_members(
    group: PlanGroup[IncrementalSpu], hits: Mapping[GroupTrigger[IncrementalSpu], Changes]
) -> Counter[IncrementalSpu]:
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
