"""SPU manager: creates, activates and destroys SPUs (SEPA paper, section 4.4).

Creator: a new query gets an SPU, and an equal query joins it. Activator: a change of the graph reaches only the SPUs
that the LUTT returns. Destroyer: an SPU ends with its last subscriber.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.faults import Incidents, contained
from edge.engine.operators.stages import Row
from edge.engine.performance import PerformanceModel, clock
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.query_plans import PlanMember, QueryPlans, Singular
from edge.engine.requests import ActiveSubscription, QueryRequest, Sink
from edge.engine.store.transaction import Transaction
from edge.engine.store.triple_index import Quad
from edge.engine.subscriptions.activation import Activation
from edge.engine.subscriptions.delivery import NotificationDelivery
from edge.engine.subscriptions.delta_evaluation import Changes
from edge.engine.subscriptions.evaluation_parts import divided
from edge.engine.subscriptions.explain_subscription import explain_member, explain_singular
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.fault_isolation import FaultIsolation
from edge.engine.subscriptions.first_result_delivery import FirstResultDelivery
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber, Ready
from edge.engine.subscriptions.plan_group import GroupTrigger
from edge.engine.subscriptions.reevaluated_delivery import ReevaluatedDelivery
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.engine.subscriptions.reevaluation import Reevaluation
from edge.engine.subscriptions.replacement import Replacement
from edge.engine.subscriptions.spu import Spu, Subscriber
from edge.engine.subscriptions.spu_registry import SpuRegistry
from edge.protocol.errors import EdgeError, ResultTooLarge


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A legal query, with its plan or evaluator."""

    found: PlanMember | Singular
    evaluator: Evaluator | None
    """Evaluator of a re-evaluated query."""


class SpuManager:
    """SPUs of an engine. Methods run on the writer's thread unless stated otherwise."""

    def __init__(
        self, world: World, committed: World, plans: QueryPlans, performance: PerformanceModel, quota: ByteQuota
    ) -> None:
        """`committed`: `world` with the mirror of committed states. `quota` is charged for the results."""
        self._world = world
        self._plans = plans
        self._performance = performance
        self.registry = SpuRegistry(world)
        self.delivery = NotificationDelivery(world, self.registry)
        self.reevaluation = Reevaluation(committed)
        """Evaluations off the writer thread."""
        self.reevaluated = ReevaluatedDelivery(world, self.registry, self.delivery, self.reevaluation, quota)
        self.incremental = FirstResultDelivery(world, self.registry, self.delivery, quota)
        self.replacement = Replacement(
            world, self.registry, self.delivery, self.incremental.first_results, self.reevaluation, plans, quota
        )

    @property
    def subscriptions(self) -> int:
        """Number of active subscriptions."""
        return len(self.registry.by_spuid)

    @property
    def spus(self) -> int:
        """Number of SPUs."""
        return self.registry.count

    @property
    def pending(self) -> int:
        """Number of queries whose subscribers do not yet have the result of the last commit."""
        return self.reevaluation.pending + len(self.registry.refreshes)

    def prepare(self, request: QueryRequest) -> PreparedQuery:
        """Compile a query. Raises `ParsingFailed`, `Forbidden`. May run on any thread."""
        found = self._plans.find(request)
        return PreparedQuery(found, self._plans.evaluator(found) if isinstance(found, Singular) else None)

    def begin(self, query: PreparedQuery, sink: Sink, alias: str | None, client: str, now: int, ready: Ready) -> None:
        """Subscribe. The sink gets the whole result as sequence 0, now or later; then `ready` is called."""
        subscriber = Subscriber(f"sepa://subscription/{uuid.uuid4()}", alias, sink, client=client)
        self._join(query, PendingSubscriber(subscriber, ready), now)

    def resume(
        self, query: PreparedQuery, sink: Sink, spuid: str, sequence: int, client: str, now: int, ready: Ready
    ) -> None:
        """Continue a subscription of the previous process, whose client has the result up to `sequence`.

        The sink gets nothing yet.
        """
        subscriber = Subscriber(spuid, None, sink, sequence + 1, client)
        if isinstance(query.found, Singular):
            self._join(query, PendingSubscriber(subscriber, ready, silent=True), now)
            return
        self.incremental.resume(query.found, subscriber)
        ready(ActiveSubscription(spuid, None))

    def _join(self, query: PreparedQuery, pending: PendingSubscriber, now: int) -> None:
        found = query.found
        if isinstance(found, Singular):
            assert query.evaluator is not None  # noqa: S101
            self.reevaluated.join(found, query.evaluator, pending, now)
            return
        spu = self.registry.demoted(found)
        if spu is None:
            self.incremental.join(found, pending)
        else:
            self.reevaluated.join_spu(spu, pending, now)

    def explain(self, query: PreparedQuery) -> Explanation:
        """Explain how a query is, or would be, kept up to date."""
        found, evaluator = query.found, query.evaluator
        if isinstance(found, Singular):
            spu = self.registry.singular.get(found)
            assert evaluator is not None, "of a query without a plan"  # noqa: S101
            depends = evaluator.dependencies() if spu is None else spu.depends
            return explain_singular(found, evaluator, depends, self._world, spu, self.reevaluation.total.seconds)
        demoted = self.registry.demoted(found)
        if demoted is not None:
            seconds = self.reevaluation.total.seconds
            return explain_singular(demoted.query, demoted.evaluator, demoted.depends, self._world, demoted, seconds)
        group, open_ = self.registry.group(found)
        try:
            return explain_member(found.request, group, open_, self._world)
        finally:
            if not group.members:
                group.release()

    def activate(self, transaction: Transaction, now: int) -> list[Activation]:
        """Compute the new results of all incremental SPUs that the transaction affects.

        Returns the SPUs that have changed or failed, and the affected re-evaluated ones. A fault of one SPU is recorded
        as a failure of that SPU. If the method raises an error, no SPU has changed.
        """
        began = clock()
        hits, everything, whole = self._concerned(transaction)
        found = clock()
        self._performance.note_lutt(found - began, len(hits) + len(whole))
        activations = [Activation(spu, at=now) for spu in whole]
        incidents = Incidents()
        try:
            if hits or everything:
                self._apply_deltas(hits, everything, transaction, activations, incidents)
        except BaseException:
            self.undo(activations)
            raise
        self._performance.note_booster(clock() - found)
        return activations

    def activate_in_parts(self, transaction: Transaction, now: int, most: int) -> Iterator[int]:
        """Compute the new results of all SPUs that the transaction affects, and notify their subscribers, part by part.

        Yields the steps of each part (see `evaluation_parts`), about `most`. Nothing else may change the graph or the
        SPUs in between. If the method raises an error, no SPU of the present part has changed.
        """
        hits, everything, whole = self._concerned(transaction)
        self.notify([Activation(spu, at=now) for spu in whole])
        incidents = Incidents()
        for part in divided(hits, everything, most):
            activations: list[Activation] = []
            try:
                self._apply_deltas(part.hits, part.everything, transaction, activations, incidents, part.only)
            except BaseException:
                self.undo(activations)
                raise
            self.notify(activations)
            yield part.steps

    def _concerned(
        self, transaction: Transaction
    ) -> tuple[dict[GroupTrigger[IncrementalSpu], list[tuple[Quad, bool]]], list[IncrementalSpu], dict[Spu, None]]:
        """Return the triggers that quads match, the incremental SPUs to evaluate as a whole, and re-evaluated ones."""
        quads, ids, watchers = transaction.quads, transaction.ids, self.registry.watchers
        hits = self.registry.triggers.hits(quads, ids)
        whole: dict[Spu, None] = dict.fromkeys(watchers.hits(quads, ids)) if watchers else {}
        everything: list[IncrementalSpu] = []
        if transaction.graphs:
            for spu in self.registry.graph_watchers:
                if isinstance(spu, IncrementalSpu):
                    everything.append(spu)
                elif isinstance(spu, ReevaluatedSpu):
                    whole[spu] = None
        return hits, everything, whole

    def _apply_deltas(
        self,
        hits: Mapping[GroupTrigger[IncrementalSpu], Changes],
        everything: Collection[IncrementalSpu],
        transaction: Transaction,
        activations: list[Activation],
        incidents: Incidents,
        only: Mapping[Row, IncrementalSpu] | None = None,
    ) -> None:
        """Apply the changed solutions to the SPUs, and list the activations. `only`: see `DeltaEvaluation`."""
        changed = FaultIsolation(
            transaction, self._world.rules, hits, everything, self.replacement.steps(transaction), only
        ).run()
        self._world.graph.budget.lift()  # an SPU must apply its change as a whole
        for spu, fault in changed.faults.items():
            activations += self._failed(spu, fault, incidents)
        for spu, failure in changed.failures.items():
            activations += self._failed(spu, ResultTooLarge(failure), incidents)
        failed = bool(changed.failures)
        for spu, moved in changed.weights.items():
            if moved and not spu.failure:
                try:
                    activations.append(Activation(spu, spu.move(self._world, moved), moved))
                    spu.half_moved = False
                except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
                    failed = True
                    activations += self._failed(spu, contained(error), incidents)
        if failed and any(activation.exceeded for activation in activations):
            self.replacement.begin_demotion(transaction, activations)

    def _failed(self, spu: Spu, error: Exception, incidents: Incidents) -> Sequence[Activation]:
        """Record that an SPU cannot take an update. Return nothing if it had failed before."""
        if spu.failure:
            return ()
        spu.faulty = not isinstance(error, EdgeError)
        spu.failure = incidents.reason(error, "updating")
        if spu.half_moved:
            self.registry.damaged[spu] = None
        return (Activation(spu, failure=spu.failure, exceeded=isinstance(error, ResultTooLarge)),)

    def undo(self, activations: Iterable[Activation]) -> None:
        """Undo `activate`, in reverse order of updates."""
        for group in self.registry.groups.values():
            group.forget()
        self._world.graph.budget.lift()
        incidents = Incidents()
        activations = list(activations)
        self.replacement.end_unwanted(activations)
        for activation in activations:
            spu = activation.spu
            if activation.refreshes:
                assert isinstance(spu, IncrementalSpu)  # noqa: S101
                self.registry.attach(spu)
                continue
            if spu.half_moved:
                continue  # `end_damaged` ends it
            spu.failure, spu.faulty = "", False
            try:
                if isinstance(spu, IncrementalSpu):
                    spu.take(self._world, activation.moved.inverse)
                    spu.account(check=False)
                spu.half_moved = False
            except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
                spu.half_moved = True
                self._failed(spu, contained(error), incidents)

    def notify(self, activations: Sequence[Activation]) -> int:
        """Notify the subscribers of a committed update, which the mirror of committed states already shows.

        Ends subscriptions of failed queries and marks re-evaluated ones. Returns the number of notifications.
        """
        self.reevaluation.published()
        sent = 0
        incidents = Incidents()
        for activation in activations:
            spu = activation.spu
            if activation.refreshes and isinstance(spu, IncrementalSpu):
                self.replacement.refresh(spu, activation)
            elif activation.old is not None and isinstance(spu, IncrementalSpu) and not spu.ended:
                self.replacement.demote(spu, activation, incidents)
            elif activation.failure:
                self.delivery.end(spu, activation.failure)
            # Not `ReevaluatedSpu` first: `isinstance` of an abstract class runs in Python for objects of other classes.
            elif not isinstance(spu, IncrementalSpu):
                if isinstance(spu, ReevaluatedSpu) and not spu.ended:
                    self.reevaluation.mark(spu, activation.at)
            elif activation.rows and spu.subscribers:
                try:
                    delta = spu.delta(self._world, activation.rows)
                except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
                    spu.faulty = True
                    self.delivery.end(spu, incidents.reason(contained(error), "notifying"))
                    continue
                sent += self.delivery.send(spu, delta, incidents)
        self.replacement.end_unwanted(activations)
        return sent
