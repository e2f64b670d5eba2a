"""Delivery of the results of re-evaluated queries: whole ones to new subscribers, changes to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.faults import Incidents, contained
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.query_plans import Singular
from edge.engine.queries.subscription_index import Dependencies
from edge.engine.requests import ActiveSubscription
from edge.engine.subscriptions.delivery import NotificationDelivery
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.engine.subscriptions.reevaluation import MAX_UNDELIVERED, Evaluated, Job, Reevaluation
from edge.engine.subscriptions.spu_registry import SpuRegistry
from edge.protocol.errors import EdgeError, NotReady


class ReevaluatedDelivery:
    """Delivery of evaluated results. Methods run on the writer's thread."""

    def __init__(
        self,
        world: World,
        registry: SpuRegistry,
        delivery: NotificationDelivery,
        reevaluation: Reevaluation,
        quota: ByteQuota,
    ) -> None:
        """`quota` is charged for the results."""
        self._world = world
        self._registry = registry
        self._delivery = delivery
        self._reevaluation = reevaluation
        self._quota = quota
        self.caught_up: Callable[[str, int], None] = lambda spuid, sequence: None
        """Called when a subscription has, with this notification, the result of the last commit."""

    def join(self, query: Singular, evaluator: Evaluator, pending: PendingSubscriber, now: int) -> None:
        """Deliver the result of a query to a new subscriber, later."""
        spu = self._registry.singular.get(query)
        if spu is None:
            spu = ReevaluatedSpu(query, evaluator, self._quota)
            # Before the evaluation, so that a commit during it marks the query again.
            self._registry.add(spu)
        self.join_spu(spu, pending, now)

    def join_spu(self, spu: ReevaluatedSpu, pending: PendingSubscriber, now: int) -> None:
        """Deliver the result of an SPU to a new subscriber, later."""
        spu.waiting += 1
        self._reevaluation.join(spu, pending, now)

    def deliver(self, most: int) -> int:
        """Notify the subscribers of at most `most` evaluated queries. Return the number of notifications."""
        incidents = Incidents()
        return sum([self._deliver(outcome, incidents) for outcome in self._reevaluation.collect(most)])

    def settle(self) -> int:
        """Evaluate on this thread and deliver until no work is left. Return the number of notifications."""
        return sum(self.settle_in_parts())

    def settle_in_parts(self) -> Iterator[int]:
        """Evaluate and deliver as `settle` does. Yields the number of notifications after each evaluation."""
        reevaluation = self._reevaluation
        while reevaluation.pending:
            job = reevaluation.next()
            if job is not None:
                reevaluation.finish(reevaluation.run(job))
            elif not reevaluation.finished:
                break
            yield self.deliver(MAX_UNDELIVERED)

    def _deliver(self, outcome: Evaluated, incidents: Incidents) -> int:
        spu, pending = outcome.job.spu, list(outcome.job.pending)
        try:
            if outcome.error is None:
                return self._take_in(spu, outcome, pending, incidents)
            self._refuse(spu, outcome.job, outcome.error, outcome.reason, pending)
        except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
            fault = contained(error)
            self._refuse(spu, outcome.job, fault, incidents.reason(fault, "notifying"), pending)
        finally:
            self._registry.end_unused(spu)
            self._reevaluation.delivered(spu)
        return 0

    def _refuse(
        self, spu: ReevaluatedSpu, job: Job, error: Exception, reason: str, pending: list[PendingSubscriber]
    ) -> None:
        """End the subscriptions of a query that cannot be evaluated, unless only a process is missing."""
        if isinstance(error, NotReady):
            self._reevaluation.mark(spu, job.at)
        else:
            pending += self._reevaluation.give_up(spu)
            spu.faulty = not isinstance(error, EdgeError)
            self._delivery.end(spu, reason)
        while pending:
            spu.waiting -= 1
            pending.pop().ready(error)

    def _take_in(
        self, spu: ReevaluatedSpu, outcome: Evaluated, pending: list[PendingSubscriber], incidents: Incidents
    ) -> int:
        """Notify the subscribers, and give new ones the whole result. Remove the served ones from `pending`."""
        sent = 0
        clients = [each.client for each in (*spu.subscribers.values(), *(new.subscriber for new in pending))]
        spu.charge.set(outcome.held, clients)
        if outcome.depends is not None:
            self._follow(spu, outcome.depends, outcome.job)
        if outcome.delta is not None and (outcome.delta.added or outcome.delta.removed):
            sent = self._delivery.send(spu, outcome.delta, incidents)
        while pending:
            spu.waiting -= 1
            self._welcome(spu, pending.pop(0), outcome)
            sent += 1
        if not spu.stale:  # no relevant commit since the start of the evaluation
            for subscriber in spu.subscribers.values():
                self.caught_up(subscriber.spuid, subscriber.sequence - 1)
        return sent

    def _welcome(self, spu: ReevaluatedSpu, pending: PendingSubscriber, outcome: Evaluated) -> None:
        """Give a new subscriber the whole result."""
        subscriber = pending.subscriber
        self._registry.enter(spu, subscriber)
        spu.clients[subscriber.client] += 1
        if not pending.silent:
            assert outcome.whole is not None  # noqa: S101
            lost = subscriber.notify(outcome.whole)
            if lost is not None:
                self._registry.destroy(subscriber.spuid)
                pending.ready(lost)
                return
        pending.ready(ActiveSubscription(subscriber.spuid, subscriber.alias))

    def _follow(self, spu: ReevaluatedSpu, depends: Dependencies, job: Job) -> None:
        """Watch the current dependencies of the result."""
        if spu.ended or set(spu.depends.watches) == set(depends.watches):
            return
        self._registry.unwatch(spu)
        self._registry.watch(spu, depends)
        if self._reevaluation.version != job.version:  # an update before the new watches may affect the result
            self._reevaluation.mark(spu, job.at)
