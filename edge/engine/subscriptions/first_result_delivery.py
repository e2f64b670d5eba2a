"""Whole results for new subscribers of incremental queries: now, or later from a forked process."""

from __future__ import annotations

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.faults import Incidents, contained
from edge.engine.operators.stages import Row, Weights
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import COUNTED_LIMIT
from edge.engine.queries.query_plans import PlanMember
from edge.engine.requests import ActiveSubscription, Delta
from edge.engine.subscriptions.deferred_first_result import DeferredFirstResult, evaluate
from edge.engine.subscriptions.delivery import NotificationDelivery
from edge.engine.subscriptions.first_results import FirstResults, PendingFirstResult, Started
from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.plan_group import PlanGroup
from edge.engine.subscriptions.spu import Subscriber
from edge.engine.subscriptions.spu_registry import SpuRegistry
from edge.protocol.errors import NotReady, ResultTooLarge


class FirstResultDelivery:
    """Delivery of whole results to new subscribers of incremental queries, and of differences to refreshed ones."""

    def __init__(self, world: World, registry: SpuRegistry, delivery: NotificationDelivery, quota: ByteQuota) -> None:
        """`quota` is charged for the results."""
        self._world = world
        self._registry = registry
        self._delivery = delivery
        self._quota = quota
        self.first_results = FirstResults(self._begin_outside, self._take_piece)
        """First results off the writer thread."""

    def join(self, query: PlanMember, pending: PendingSubscriber) -> None:
        """Give a new subscriber the whole result of an incremental query, now or later. Raises `EdgeError`."""
        group, open_ = self._registry.group(query)
        spu, steps = group.members.get(open_), self.first_results.steps
        if spu is not None and not spu.begun:
            spu.deferred_results[0].pending.append(pending)
            return
        try:
            if spu is None:
                spu, result = self._create(query, group, open_, steps)
            else:
                result = spu.result(self._world, steps)
        except ResultTooLarge:
            if steps is None:
                raise
            self.first_results.put(PendingFirstResult(query, pending))  # perhaps only too large for the writer thread
            return
        self._registry.enter(spu, pending.subscriber)
        try:
            spu.account()
            lost = pending.subscriber.notify(spu.delta(self._world, result))
            if lost is not None:
                raise lost
        except BaseException:
            self._registry.destroy(pending.subscriber.spuid)
            raise
        # After sequence 0: gates take the first notification for the answer.
        pending.ready(ActiveSubscription(pending.subscriber.spuid, pending.subscriber.alias))

    def resume(self, query: PlanMember, subscriber: Subscriber) -> None:
        """Add a subscriber that has the result already. Raises `ResultTooLarge`."""
        group, open_ = self._registry.group(query)
        spu = group.members.get(open_) or self._create(query, group, open_, None)[0]
        self._registry.enter(spu, subscriber)
        spu.account(check=False)

    def _create(
        self, query: PlanMember, group: PlanGroup[IncrementalSpu], open_: Row, steps: int | None
    ) -> tuple[IncrementalSpu, Weights]:
        """Return a new SPU and its whole result. `steps`: step budget. Raises `ResultTooLarge`."""
        spu: IncrementalSpu | None = None
        try:
            spu = IncrementalSpu(group, open_, self._world, query, self._quota)
            result = spu.begin(self._world, steps)
        except BaseException:
            self._registry.discard(group, spu)
            raise
        self._registry.register(spu)
        return spu, result

    def _begin_outside(self, wanted: PendingFirstResult) -> Started | None:
        """Fork a process that finds a first result, and register the SPU for updates from now on.

        Return None if another process finds the result already. Raises `NotReady`.
        """
        world, rules, pending = self._world, self._world.rules, wanted.pending
        group, open_ = self._registry.group(wanted.query)
        spu, new = group.members.get(open_), None
        if spu is not None and not spu.begun and pending.refresh is None:
            spu.deferred_results[0].pending.append(pending)
            return None
        try:
            if spu is None:
                spu = new = IncrementalSpu(group, open_, world, wanted.query, self._quota)
            child = world.forked.begin(
                lambda: evaluate(group, open_, rules), rules.settings.query_timeout, COUNTED_LIMIT
            )
        except BaseException:
            self._registry.discard(group, new)
            raise
        if new is not None:
            self._registry.register(new)
        return spu, spu.begin_outside(pending), child

    def _take_piece(self, spu: IncrementalSpu, deferred: DeferredFirstResult, fault: Exception | None) -> bool:
        """Merge a piece of a first result. Return whether more pieces follow."""
        if deferred.over:
            return False
        world = self._world
        try:
            if fault is not None:
                raise fault
            world.graph.budget.begin()
            if not deferred.take(world):
                return True
            whole = deferred.result() if any(each.refresh is None for each in deferred.pending) else None
            difference = deferred.difference()
            spu.begun_outside(world, deferred)
            self._welcome_all(spu, deferred, whole, difference)
        except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
            self._delivery.abandon(spu, deferred, contained(error))
        finally:
            world.graph.dictionary.sweep()
        return False

    def refuse(self, error: NotReady) -> None:
        """Reject the subscribers that wait for a first result, because the engine stops."""
        self.first_results.refuse(error)
        for group in list(self._registry.groups.values()):
            for spu in list(group.members.values()):
                for deferred in list(spu.deferred_results):
                    self._delivery.abandon(spu, deferred, error)

    def _welcome_all(
        self, spu: IncrementalSpu, deferred: DeferredFirstResult, whole: Delta | None, difference: Delta
    ) -> None:
        """Give new subscribers the whole result, and those of a full refresh the difference to their result."""
        for pending in deferred.pending:
            newcomers = [pending.subscriber] if pending.refresh is None else pending.refresh.subscribers.values()
            # All enter before the first is notified, so that the end of one does not end the SPU of the others.
            for subscriber in newcomers:
                self._registry.enter(spu, subscriber)
        while deferred.pending:
            pending = deferred.pending.pop(0)
            subscriber = pending.subscriber
            outcome: ActiveSubscription | Exception = ActiveSubscription(subscriber.spuid, subscriber.alias)
            try:
                spu.account()
                if whole is not None and pending.refresh is None:
                    lost = subscriber.notify(whole)
                    if lost is not None:
                        raise lost
            except Exception as error:  # noqa: BLE001  the fault of one subscriber must not affect the others
                if pending.refresh is None:
                    self._registry.destroy(subscriber.spuid)
                outcome = error
            else:
                if pending.refresh is not None:
                    self._refreshed(pending.refresh, difference)
            pending.ready(outcome)
        self._registry.end_idle(spu)

    def _refreshed(self, refresh: FullRefresh, difference: Delta) -> None:
        """Notify the subscribers of a finished refresh. They belong to an incremental SPU again."""
        # Taken first, so that ending the refresh does not end its subscribers.
        subscribers = list(refresh.subscribers.values())
        refresh.subscribers.clear()
        self._registry.end_refresh(refresh)
        if difference.added or difference.removed:
            self._delivery.notify(subscribers, difference, Incidents())
