"""SPU manager: creates, activates and destroys SPUs (SEPA paper, section 4.4).

Creator: a new query gets an SPU, and an equal query joins it. Activator: a change of the graph reaches only the SPUs
that the LUTT returns. Destroyer: an SPU ends with its last subscriber.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.slots import GATEWAY
from edge.engine.faults import Incidents, contained
from edge.engine.operators.stages import Row, Weights
from edge.engine.performance import PerformanceModel, clock
from edge.engine.queries.evaluator import Evaluator, World
from edge.engine.queries.incremental_plan import QueryPlan
from edge.engine.queries.lutt import Dependencies, Ids, Lutt
from edge.engine.queries.query_plans import Member, QueryPlans, Singular
from edge.engine.requests import Delta, QueryRequest, Sink, Subscription
from edge.engine.store.graph import Quad
from edge.engine.store.transaction import Transaction
from edge.engine.subscriptions import demotion
from edge.engine.subscriptions.beginning import Beginning, evaluate
from edge.engine.subscriptions.delta_evaluation import Changes
from edge.engine.subscriptions.demotion import OldResults, Rows
from edge.engine.subscriptions.explain import explain_member, explain_singular
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.fault_isolation import FaultIsolation
from edge.engine.subscriptions.first_results import DEMOTIONS, FirstResults, PendingFirstResult, Started
from edge.engine.subscriptions.plan_group import GroupTrigger, MemoLimit, PlanGroup, open_places
from edge.engine.subscriptions.reevaluation import MAX_UNDELIVERED, Evaluated, Job, Reevaluation
from edge.engine.subscriptions.renewal import Renewal, chosen
from edge.engine.subscriptions.spu import IncrementalSpu, Joining, Ready, ReevaluatedSpu, Spu, Subscriber
from edge.protocol.errors import EdgeError, NotFound, NotReady, ResultTooLarge
from edge.protocol.results import Term


@dataclass(slots=True)
class Activation:
    """Effect of one update on one SPU: changed rows, or the reason why its query could not be evaluated.

    A re-evaluated SPU has neither, because it is evaluated after the commit.
    """

    spu: Spu
    told: Weights = field(default_factory=dict)
    moved: Weights = field(default_factory=dict)
    """The solutions that an incremental SPU has applied."""
    failure: str = ""
    at: int = 0
    """Engine time of the update."""
    exceeded: bool = False
    """Whether the update exceeds a limit of the query."""
    old: OldResults | None = None
    """Source of the result from before the update, if the SPU is demoted or renewed."""
    number: int = 0
    """Index of its result there."""
    renews: bool = False
    """Whether an incremental SPU was detached, to be renewed after the commit."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A legal query, with its plan or evaluator."""

    found: Member | Singular
    evaluator: Evaluator | None
    """Evaluator of a re-evaluated query."""


class SpuManager:
    """Registry of all SPUs of an engine."""

    def __init__(
        self, world: World, committed: World, plans: QueryPlans, performance: PerformanceModel, quota: ByteQuota
    ) -> None:
        """`committed`: `world` with the mirror of committed states. `quota` is charged for the results."""
        self._quota = quota
        self._world = world
        self._effort = world.graph.effort
        self._plans = plans
        self._performance = performance
        self._triggers: Lutt[GroupTrigger] = Lutt(world.graph)
        self._watchers: Lutt[ReevaluatedSpu] = Lutt(world.graph)
        self._graph_watchers: dict[Spu, None] = {}
        self._memory = MemoLimit(world.rules.max_remembered_bytes)
        self._groups: dict[tuple[QueryPlan, Row], PlanGroup] = {}
        self._singular: dict[Singular, ReevaluatedSpu] = {}
        self._demoted: dict[tuple[QueryPlan, tuple[Term, ...]], ReevaluatedSpu] = {}
        """Demoted SPUs, by plan and constants."""
        self._demoting = 0
        """Number of processes that find results for demotions and renewals."""
        self._renewals: dict[Renewal, None] = {}
        self._by_spuid: dict[str, Spu] = {}
        self._count = 0
        self._damaged: dict[Spu, None] = {}
        """SPUs that an error stopped half-way."""
        self.faults = 0
        """Number of subscriptions that ended by a fault of the gateway."""
        self.reevaluation = Reevaluation(committed)
        """Evaluations off the writer thread."""
        self.first_results = FirstResults(self._begin_outside, self._take_piece)
        """First results of incremental subscriptions off the writer thread."""
        self.caught_up: Callable[[str, int], None] = lambda spuid, sequence: None
        """Called when a re-evaluated subscription has, with this notification, the result of the last commit."""
        self.demoted: Callable[[str], None] = lambda spuid: None
        """Called with the spuid of a subscription that is demoted or renewed."""

    @property
    def subscriptions(self) -> int:
        """Number of active subscriptions."""
        return len(self._by_spuid)

    @property
    def spus(self) -> int:
        """Number of SPUs."""
        return self._count

    @property
    def pending(self) -> int:
        """Number of queries whose subscribers do not yet have the result of the last commit."""
        return self.reevaluation.pending + len(self._renewals)

    # Creator and Destroyer

    def prepare(self, request: QueryRequest) -> PreparedQuery:
        """Compile a query. Raises `ParsingFailed`, `Forbidden`. May run on any thread."""
        found = self._plans.find(request)
        return PreparedQuery(found, self._plans.evaluator(found) if isinstance(found, Singular) else None)

    def begin(self, query: PreparedQuery, sink: Sink, alias: str | None, client: str, now: int, ready: Ready) -> None:
        """Subscribe. The sink gets the whole result as sequence 0, now or later; then `ready` is called."""
        subscriber = Subscriber(f"sepa://subscription/{uuid.uuid4()}", alias, sink, client=client)
        if isinstance(query.found, Singular):
            self._join_singular(query, Joining(subscriber, ready), now)
            return
        spu = self._demoted.get(_key(query.found)) if self._demoted else None
        if spu is None:
            self._join_incremental(query.found, Joining(subscriber, ready))
        else:
            spu.waiting += 1
            self.reevaluation.join(spu, Joining(subscriber, ready), now)

    def resume(
        self, query: PreparedQuery, sink: Sink, spuid: str, sequence: int, client: str, now: int, ready: Ready
    ) -> None:
        """Continue a subscription of the previous process, whose client has the result up to `sequence`.

        The sink gets nothing yet.
        """
        subscriber = Subscriber(spuid, None, sink, sequence + 1, client)
        if isinstance(query.found, Singular):
            self._join_singular(query, Joining(subscriber, ready, silent=True), now)
            return
        group, open_ = self._group(query.found)
        spu = group.members.get(open_) or self._create(query.found, group, open_, None)[0]
        self._enter(spu, subscriber)
        spu.account(check=False)
        ready(Subscription(spuid, None))

    def variables(self, spuid: str) -> tuple[str, ...]:
        """Return the columns of a subscription's result."""
        return self._by_spuid[spuid].variables

    def redirect(self, spuid: str, sink: Sink) -> None:
        """Replace the sink of a subscription."""
        self._by_spuid[spuid].subscribers[spuid].sink = sink

    def transfer(self, spuid: str, client: str) -> None:
        """Assign a subscription to another client, unless it has ended."""
        spu = self._by_spuid.get(spuid)
        if spu is None:
            return
        subscriber = spu.subscribers[spuid]
        if isinstance(spu, ReevaluatedSpu):
            spu.clients -= Counter((subscriber.client,))
            spu.clients[client] += 1
        spu.transfer(subscriber, client)

    def last(self, spuid: str) -> int | None:
        """Return the sequence number of the last notification; None if the subscription has ended."""
        spu = self._by_spuid.get(spuid)
        return None if spu is None else spu.subscribers[spuid].sequence - 1

    def is_current(self, spuid: str) -> bool:
        """Return whether a subscription has the result of the last commit."""
        spu = self._by_spuid[spuid]
        return isinstance(spu, IncrementalSpu) or (isinstance(spu, ReevaluatedSpu) and not (spu.stale or spu.busy))

    def is_boosted(self, spuid: str) -> bool:
        """Return whether a subscription uses incremental evaluation."""
        return isinstance(self._by_spuid[spuid], IncrementalSpu)

    def _enter(self, spu: Spu, subscriber: Subscriber) -> None:
        spu.subscribers[subscriber.spuid] = subscriber
        self._by_spuid[subscriber.spuid] = spu

    def destroy(self, spuid: str) -> None:
        """Unsubscribe. Raises `NotFound`."""
        spu = self._by_spuid.pop(spuid, None)
        if spu is None:
            raise NotFound(f"The subscription {spuid} does not exist")
        subscriber = spu.subscribers[spuid]
        spu.leave(subscriber)
        if isinstance(spu, ReevaluatedSpu):
            spu.clients -= Counter((subscriber.client,))
            self._end_unused(spu)
        elif isinstance(spu, IncrementalSpu):
            self._end_idle(spu)

    def _end_idle(self, spu: IncrementalSpu) -> None:
        """End an incremental SPU without subscribers and without clients that wait for its first result."""
        if spu.subscribers or spu.beginnings or spu.ended:
            return
        self._detach(spu)
        self._forget_empty(spu.group)
        self._damaged.pop(spu, None)
        spu.end(self._world)
        self._count -= 1

    def _end_unused(self, spu: ReevaluatedSpu) -> None:
        """End a re-evaluated SPU without subscribers and without clients that wait for its first result."""
        if spu.subscribers or spu.waiting or spu.ended:
            return
        if spu.demoted is None:
            del self._singular[spu.query]
        else:
            del self._demoted[_key(spu.demoted)]
        self._unwatch(spu)
        spu.end(self._world)
        self._count -= 1

    def _group(self, found: Member) -> tuple[PlanGroup, Row]:
        """Return the plan group of a query, or a new one, and the open constants of the query."""
        plan = found.plan
        intern = self._world.graph.dictionary.intern
        places = open_places(plan)
        ids = [(intern(term), place) for term, (_, place) in zip(found.constants, plan.layout.parameters, strict=True)]
        open_ = tuple(term_id for term_id, place in ids if place in places)
        closed = tuple(None if place in places else term_id for term_id, place in ids)
        group = self._groups.get((plan, closed))
        return PlanGroup(plan, self._world.graph, closed, self._memory) if group is None else group, open_

    def _join_incremental(self, query: Member, joining: Joining) -> None:
        """Give a new subscriber the whole result of an incremental query, now or later. Raises `EdgeError`."""
        group, open_ = self._group(query)
        spu, steps = group.members.get(open_), self.first_results.steps
        if spu is not None and not spu.begun:
            spu.beginnings[0].joining.append(joining)
            return
        try:
            if spu is None:
                spu, result = self._create(query, group, open_, steps)
            else:
                result = spu.result(self._world, steps)
        except ResultTooLarge:
            if steps is None:
                raise
            self.first_results.put(PendingFirstResult(query, joining))  # perhaps only too large for the writer thread
            return
        self._enter(spu, joining.subscriber)
        try:
            spu.account()
            lost = joining.subscriber.notify(spu.delta(self._world, result))
            if lost is not None:
                raise lost
        except BaseException:
            self.destroy(joining.subscriber.spuid)
            raise
        joining.ready(Subscription(joining.subscriber.spuid, joining.subscriber.alias))

    def _create(self, query: Member, group: PlanGroup, open_: Row, steps: int | None) -> tuple[IncrementalSpu, Weights]:
        """Return a new SPU and its whole result. `steps`: step budget. Raises `ResultTooLarge`."""
        spu: IncrementalSpu | None = None
        try:
            spu = IncrementalSpu(group, open_, self._world, query, self._quota)
            result = spu.begin(self._world, steps)
        except BaseException:
            self._discard(group, spu)
            raise
        self._register(spu)
        return spu, result

    def _discard(self, group: PlanGroup, spu: IncrementalSpu | None) -> None:
        """Release an SPU that could not be created."""
        if spu is not None:
            spu.end(self._world)
        if not group.members:
            group.release()

    def _register(self, spu: IncrementalSpu) -> None:
        """Register an SPU and its plan group."""
        self._groups[spu.group.plan, spu.group.closed] = spu.group
        self._attach(spu)
        self._count += 1

    def _attach(self, spu: IncrementalSpu) -> None:
        """Register an SPU of a known plan group for updates."""
        group = spu.group
        group.members[spu.open] = spu
        group.forget()  # cached solutions were assigned to the previous members
        for pattern, trigger in group.keys(spu.open):
            self._triggers.add(pattern, trigger)
        if group.plan.graph_names:
            self._graph_watchers[spu] = None

    def _detach(self, spu: IncrementalSpu) -> None:
        """Remove an SPU from its plan group and from the LUTT."""
        group = spu.group
        for pattern, trigger in group.keys(spu.open):
            self._triggers.remove(pattern, trigger)
        del group.members[spu.open]
        group.forget()
        self._graph_watchers.pop(spu, None)

    # First results that take long

    def _begin_outside(self, wanted: PendingFirstResult) -> Started | None:
        """Fork a process that finds a first result, and register the SPU for updates from now on.

        Return None if another process finds the result already. Raises `NotReady`.
        """
        world, rules, joining = self._world, self._world.rules, wanted.joining
        group, open_ = self._group(wanted.query)
        spu, new = group.members.get(open_), None
        if spu is not None and not spu.begun and joining.renewal is None:
            spu.beginnings[0].joining.append(joining)
            return None
        try:
            if spu is None:
                spu = new = IncrementalSpu(group, open_, world, wanted.query, self._quota)
            child = world.apart.begin(
                lambda: evaluate(group, open_, rules), rules.update_timeout, "engine.update_timeout"
            )
        except BaseException:
            self._discard(group, new)
            raise
        if new is not None:
            self._register(new)
        return spu.begin_outside(joining), child

    def _take_piece(self, beginning: Beginning, fault: Exception | None) -> bool:
        """Merge a piece of a first result. Return whether more pieces follow."""
        if beginning.over:
            return False
        spu, world = beginning.spu, self._world
        try:
            if fault is not None:
                raise fault
            self._effort.begin()
            if not beginning.take(world):
                return True
            whole = beginning.result() if any(each.renewal is None for each in beginning.joining) else None
            difference = beginning.difference()
            spu.begun_outside(world, beginning)
            self._welcome_all(spu, beginning, whole, difference)
        except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
            self._abandon(beginning, contained(error))
        finally:
            world.graph.dictionary.sweep()
        return False

    def refuse_first(self, error: NotReady) -> None:
        """Reject the subscribers that wait for a first result, because the engine stops."""
        self.first_results.refuse(error)
        for group in list(self._groups.values()):
            for spu in list(group.members.values()):
                for beginning in list(spu.beginnings):
                    self._abandon(beginning, error)

    def _welcome_all(self, spu: IncrementalSpu, beginning: Beginning, whole: Delta | None, difference: Delta) -> None:
        """Give new subscribers the whole result, and those of a renewal the difference to their result."""
        for joining in beginning.joining:
            newcomers = [joining.subscriber] if joining.renewal is None else joining.renewal.subscribers.values()
            for subscriber in newcomers:
                self._enter(spu, subscriber)
        while beginning.joining:
            joining = beginning.joining.pop(0)
            subscriber = joining.subscriber
            outcome: Subscription | Exception = Subscription(subscriber.spuid, subscriber.alias)
            try:
                spu.account()
                if whole is not None and joining.renewal is None:
                    lost = subscriber.notify(whole)
                    if lost is not None:
                        raise lost
            except Exception as error:  # noqa: BLE001  the fault of one subscriber must not affect the others
                if joining.renewal is None:
                    self.destroy(subscriber.spuid)
                outcome = error
            else:
                if joining.renewal is not None:
                    self._renewed(joining.renewal, difference)
            joining.ready(outcome)
        self._end_idle(spu)

    def _abandon(self, beginning: Beginning, error: Exception) -> None:
        """Reject the subscribers that wait for a first result."""
        spu = beginning.spu
        if not beginning.over:
            spu.abandon(self._world, beginning)
        while beginning.joining:
            beginning.joining.pop(0).ready(error)
        self._end_idle(spu)

    def _forget_empty(self, group: PlanGroup) -> None:
        """Remove a plan group without members."""
        key = group.plan, group.closed
        if not group.members and self._groups.get(key) is group:
            del self._groups[key]
            group.release()

    def _join_singular(self, query: PreparedQuery, joining: Joining, now: int) -> None:
        """Deliver the result of a re-evaluated query to a new subscriber."""
        assert isinstance(query.found, Singular)  # noqa: S101
        spu = self._singular.get(query.found)
        if spu is None:
            evaluator = query.evaluator
            assert evaluator is not None  # noqa: S101
            spu = self._singular[query.found] = ReevaluatedSpu(query.found, evaluator, self._quota)
            # Before the evaluation, so that a commit during it marks the query again.
            self._watch(spu, evaluator.dependencies())
            self._count += 1
        spu.waiting += 1
        self.reevaluation.join(spu, joining, now)

    # Explain

    def explain(self, query: PreparedQuery) -> Explanation:
        """Explain how a query is, or would be, kept up to date."""
        found, evaluator = query.found, query.evaluator
        if isinstance(found, Singular):
            spu = self._singular.get(found)
            assert evaluator is not None, "of a query without a plan"  # noqa: S101
            depends = evaluator.dependencies() if spu is None else spu.depends
            return explain_singular(found, evaluator, depends, self._world, spu, self.reevaluation.total.seconds)
        demoted = self._demoted.get(_key(found))
        if demoted is not None:
            seconds = self.reevaluation.total.seconds
            return explain_singular(demoted.query, demoted.evaluator, demoted.depends, self._world, demoted, seconds)
        group, open_ = self._group(found)
        try:
            return explain_member(found.request, group, open_, self._world)
        finally:
            if not group.members:
                group.release()

    # Activator

    def activate(self, transaction: Transaction, now: int) -> list[Activation]:
        """Compute the new results of all incremental SPUs that the transaction affects.

        Returns the SPUs that have changed or failed, and the affected re-evaluated ones. A fault of one SPU is recorded
        as a failure of that SPU. If the method raises an error, no SPU has changed.
        """
        began = clock()
        hits = self._triggers.hits(transaction.quads, transaction.ids)
        whole = dict.fromkeys(self._watchers.hits(transaction.quads, transaction.ids)) if self._watchers else {}
        everything: list[IncrementalSpu] = []
        if transaction.graphs:
            for spu in self._graph_watchers:
                if isinstance(spu, IncrementalSpu):
                    everything.append(spu)
                elif isinstance(spu, ReevaluatedSpu):
                    whole[spu] = None
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

    def _apply_deltas(
        self,
        hits: Mapping[GroupTrigger, Changes],
        everything: Collection[IncrementalSpu],
        transaction: Transaction,
        activations: list[Activation],
        incidents: Incidents,
    ) -> None:
        """Apply the changed solutions to the SPUs, and list the activations."""
        changed = FaultIsolation(transaction, self._world.rules, hits, everything, self._steps(transaction)).run()
        self._effort.lift()  # an SPU must apply its change as a whole
        for spu, fault in changed.faults.items():
            activations += self._failed(spu, fault, incidents)
        for spu, failure in changed.failures.items():
            activations += self._failed(spu, ResultTooLarge(failure), incidents)
        for spu, moved in changed.weights.items():
            if moved and not spu.failure:
                try:
                    activations.append(Activation(spu, spu.move(self._world, moved), moved))
                    spu.half_moved = False
                except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
                    activations += self._failed(spu, contained(error), incidents)
        if any(activation.exceeded for activation in activations):
            self._begin_demotion(transaction, activations)

    def _steps(self, transaction: Transaction) -> int | None:
        """Return the step budget of an update for one subscription; None, for no limit of its own, without demotion."""
        if not self._can_demote:
            return None
        return demotion.STEPS + demotion.STEPS_PER_QUAD * len(transaction.quads)

    @property
    def _can_demote(self) -> bool:
        """Whether a process may be forked for a demotion."""
        return self.first_results.steps is not None and self._demoting < DEMOTIONS

    def _begin_demotion(self, transaction: Transaction, activations: Iterable[Activation]) -> None:
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

    def _failed(self, spu: Spu, error: Exception, incidents: Incidents) -> Sequence[Activation]:
        """Record that an SPU cannot take an update. Return nothing if it had failed before."""
        if spu.failure:
            return ()
        spu.faulty = not isinstance(error, EdgeError)
        spu.failure = incidents.reason(error, "updating")
        if spu.half_moved:
            self._damaged[spu] = None
        return (Activation(spu, {}, {}, failure=spu.failure, exceeded=isinstance(error, ResultTooLarge)),)

    def undo(self, activations: Iterable[Activation]) -> None:
        """Undo `activate`, in reverse order of updates."""
        for group in self._groups.values():
            group.forget()
        self._effort.lift()
        incidents = Incidents()
        activations = list(activations)
        self._end_unwanted(activations)
        for activation in activations:
            spu = activation.spu
            if activation.renews:
                assert isinstance(spu, IncrementalSpu)  # noqa: S101
                self._attach(spu)
                continue
            if spu.half_moved:
                continue  # `end_damaged` ends it
            spu.failure, spu.faulty = "", False
            try:
                if isinstance(spu, IncrementalSpu):
                    spu.take(self._world, {row: -weight for row, weight in activation.moved.items()})
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
            if activation.renews and isinstance(spu, IncrementalSpu):
                self._renew(spu, activation)
            elif activation.old is not None and isinstance(spu, IncrementalSpu) and not spu.ended:
                self._demote(spu, activation, incidents)
            elif activation.failure:
                self._end(spu, activation.failure)
            elif isinstance(spu, ReevaluatedSpu):
                if not spu.ended:
                    self.reevaluation.mark(spu, activation.at)
            elif activation.told and spu.subscribers:
                assert isinstance(spu, IncrementalSpu)  # noqa: S101
                try:
                    delta = spu.delta(self._world, activation.told)
                except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
                    spu.faulty = True
                    self._end(spu, incidents.reason(contained(error), "notifying"))
                    continue
                sent += self._send(spu, delta, incidents)
        self._end_unwanted(activations)
        return sent

    def _end_unwanted(self, activations: Iterable[Activation]) -> None:
        """End the processes of demotions and renewals that do not take place."""
        for activation in activations:
            if activation.old is not None and not activation.old.used:
                activation.old.used = True
                activation.old.child.end()
                self._demoting -= 1

    def _send(self, spu: Spu, delta: Delta, incidents: Incidents) -> int:
        """Notify the subscribers of an SPU."""
        return self._tell(list(spu.subscribers.values()), delta, incidents)

    def _tell(self, subscribers: Sequence[Subscriber], delta: Delta, incidents: Incidents) -> int:
        """Notify subscribers, and end subscriptions with a failed sink. Return the number of notifications."""
        sent = len(subscribers)
        lost = [(each, fault) for each in subscribers if (fault := each.notify(delta)) is not None]
        for subscriber, fault in lost:
            self.faults += 1
            subscriber.fail(incidents.reason(fault, "notifying"))
            self.destroy(subscriber.spuid)
        return sent

    def end_damaged(self) -> None:
        """End the SPUs that an error stopped half-way and that are not part of a pending update."""
        for spu in list(self._damaged):
            self._end(spu, spu.failure)

    def _end(self, spu: Spu, reason: str) -> None:
        """Notify the subscribers of an SPU of its failure, and destroy it."""
        if isinstance(spu, IncrementalSpu):
            for beginning in list(spu.beginnings):
                self._abandon(beginning, EdgeError(reason) if spu.faulty else ResultTooLarge(reason))
        for subscriber in list(spu.subscribers.values()):
            self.faults += spu.faulty
            subscriber.fail(reason)
            self.destroy(subscriber.spuid)

    # Renewal

    def set_apart(self, quads: Mapping[Quad, bool], ids: Ids) -> list[Activation]:
        """Detach the SPUs with many hits of a large change, before the change is applied to the graph.

        `notify` renews them after the commit; `undo` attaches them again.
        """
        if self.first_results.steps is None:
            return []
        spus = list(chosen(self._triggers.hits(quads, ids)))
        begun = [spu for spu in spus if spu.begun]
        old = self._old_results(begun, sign=-1) if begun else None
        if old is None:  # without a process the change updates them incrementally
            spus = [spu for spu in spus if not spu.begun]
        for spu in spus:
            self._detach(spu)
        return [
            Activation(spu, renews=True, old=old, number=begun.index(spu))
            if spu.begun
            else Activation(spu, renews=True)
            for spu in spus
        ]

    def _old_results(self, spus: Sequence[IncrementalSpu], sign: int = 1) -> OldResults | None:
        """Fork a process that finds the current results. Return None if no process can be started."""
        world = self._world
        if not self._can_demote:
            return None
        try:
            child = world.apart.begin(
                lambda: demotion.evaluate(spus, world), world.rules.update_timeout, "engine.update_timeout"
            )
        except EdgeError:
            return None
        self._demoting += 1
        return OldResults(child, [len(spu.variables) for spu in spus], sign)

    def _renew(self, spu: IncrementalSpu, activation: Activation) -> None:
        """End an SPU, and have its query evaluated again for its subscribers."""
        wanted: list[Joining] = []
        for beginning in list(spu.beginnings):
            wanted += beginning.joining
            beginning.joining.clear()
            spu.abandon(self._world, beginning)
        old = activation.old
        if spu.subscribers and old is not None:
            renewal = Renewal(spu.query, self._quota)
            for spuid, subscriber in spu.subscribers.items():
                self._enter(renewal, subscriber)
                self.demoted(spuid)
            spu.subscribers.clear()
            self._renewals[renewal] = None
            old.waiting.append((renewal, activation))
            self._fetch(old, next(iter(renewal.subscribers.values())).client)
        self._forget_empty(spu.group)
        self._damaged.pop(spu, None)
        spu.end(self._world)
        self._count -= 1
        for joining in wanted:
            self.first_results.put(PendingFirstResult(spu.query, joining))

    def _fetch(self, old: OldResults, client: str) -> None:
        """Start to read results from before an update, once."""
        if not old.used:
            old.used = True
            self.first_results.fetch(client, old.read, partial(self._go_on, old.waiting))

    def _start_renewal(self, renewal: Renewal, since: Rows) -> None:
        if not renewal.subscribers:
            self._end_renewal(renewal)
        else:
            renewal.has(since)
            client = next(iter(renewal.subscribers.values())).client
            nobody = Subscriber("", None, lambda _: None, client=client)
            joining = Joining(nobody, partial(self._renewal_over, renewal), renewal=renewal)
            self.first_results.put(PendingFirstResult(renewal.query, joining))

    def _renewed(self, renewal: Renewal, difference: Delta) -> None:
        """Notify the subscribers of a finished renewal. They belong to an incremental SPU again."""
        subscribers = list(renewal.subscribers.values())
        renewal.subscribers.clear()
        self._end_renewal(renewal)
        if difference.added or difference.removed:
            self._tell(subscribers, difference, Incidents())

    def _renewal_over(self, renewal: Renewal, outcome: Subscription | Exception) -> None:
        """End the subscribers of a failed renewal, unless it failed because the engine stops."""
        if isinstance(outcome, Exception) and not isinstance(outcome, NotReady):
            reason = Incidents().reason(outcome, "updating")
            for subscriber in list(renewal.subscribers.values()):
                subscriber.fail(reason)
                self.destroy(subscriber.spuid)
            self._end_renewal(renewal)

    def _end_renewal(self, renewal: Renewal) -> None:
        self._renewals.pop(renewal, None)
        renewal.end(self._world)

    # Demotion

    def _demote(self, spu: IncrementalSpu, activation: Activation, incidents: Incidents) -> None:
        """Replace an incremental SPU by a re-evaluated one."""
        old, reason = activation.old, activation.failure
        assert old is not None  # noqa: S101
        for beginning in list(spu.beginnings):
            self._abandon(beginning, ResultTooLarge(reason))
        if not spu.subscribers:
            return
        try:
            query = Singular(spu.query.request, demotion.REASON)
            new = ReevaluatedSpu(query, self._plans.evaluator(query), self._quota)
        except Exception as error:  # noqa: BLE001  the fault of one query must not affect the others
            self._end(spu, incidents.reason(error, "updating"))
            return
        new.demoted, new.busy = spu.query, True  # busy: no evaluation may start before its old result is known
        new.known.variables = spu.variables
        for spuid, subscriber in spu.subscribers.items():
            self._enter(new, subscriber)
            new.clients[subscriber.client] += 1
            self.demoted(spuid)
        spu.subscribers.clear()
        self._end_idle(spu)
        self._demoted[_key(new.demoted)] = new
        self._watch(new, new.evaluator.dependencies())
        self._count += 1
        old.waiting.append((new, activation))
        self._fetch(old, min(new.clients, default=GATEWAY))

    def _go_on(
        self,
        waiting: Sequence[tuple[ReevaluatedSpu | Renewal, Activation]],
        found: Sequence[Rows | EdgeError] | Exception,
    ) -> None:
        """Continue demotions and renewals after their old results were read."""
        self._demoting -= 1
        for spu, activation in waiting:
            result = found if isinstance(found, Exception) else found[activation.number]
            if isinstance(spu, Renewal):
                if isinstance(result, Exception):
                    self._renewal_over(spu, result)
                else:
                    self._start_renewal(spu, result)
                continue
            if spu.ended:
                continue
            if isinstance(result, Exception):
                self._refuse_demoted(spu, result, activation.failure)
                continue
            spu.known.go_on(spu.variables, result)
            self.reevaluation.mark(spu, activation.at)
            self.reevaluation.delivered(spu)

    def _refuse_demoted(self, spu: ReevaluatedSpu, error: Exception, reason: str) -> None:
        self._end(spu, reason)
        for joining in self.reevaluation.give_up(spu):
            spu.waiting -= 1
            joining.ready(error)
        self._end_unused(spu)

    # Re-evaluated subscriptions

    def deliver(self, most: int) -> int:
        """Notify the subscribers of at most `most` evaluated queries. Return the number of notifications."""
        incidents = Incidents()
        return sum([self._deliver(outcome, incidents) for outcome in self.reevaluation.collect(most)])

    def settle(self) -> int:
        """Evaluate on this thread and deliver until no work is left. Return the number of notifications."""
        reevaluation, sent = self.reevaluation, 0
        while reevaluation.pending:
            while (job := reevaluation.next()) is not None:
                reevaluation.finish(reevaluation.run(job))
            if not reevaluation.finished:
                break
            sent += self.deliver(MAX_UNDELIVERED)
        return sent

    def _deliver(self, outcome: Evaluated, incidents: Incidents) -> int:
        spu, joining = outcome.job.spu, list(outcome.job.joining)
        try:
            if outcome.error is None:
                return self._take_in(spu, outcome, joining, incidents)
            self._refuse(spu, outcome.job, outcome.error, outcome.reason, joining)
        except BaseException as error:  # noqa: BLE001  `contained` raises KeyboardInterrupt and the like again
            fault = contained(error)
            self._refuse(spu, outcome.job, fault, incidents.reason(fault, "notifying"), joining)
        finally:
            self._end_unused(spu)
            self.reevaluation.delivered(spu)
        return 0

    def _refuse(self, spu: ReevaluatedSpu, job: Job, error: Exception, reason: str, joining: list[Joining]) -> None:
        """End the subscriptions of a query that cannot be evaluated, unless only a process is missing."""
        if isinstance(error, NotReady):
            self.reevaluation.mark(spu, job.at)
        else:
            joining += self.reevaluation.give_up(spu)
            spu.faulty = not isinstance(error, EdgeError)
            self._end(spu, reason)
        while joining:
            spu.waiting -= 1
            joining.pop().ready(error)

    def _take_in(self, spu: ReevaluatedSpu, outcome: Evaluated, joining: list[Joining], incidents: Incidents) -> int:
        """Notify the subscribers, and give new ones the whole result. Remove the served ones from `joining`."""
        sent = 0
        clients = [each.client for each in (*spu.subscribers.values(), *(new.subscriber for new in joining))]
        spu.charge.set(outcome.held, clients)
        if outcome.depends is not None:
            self._follow(spu, outcome.depends, outcome.job)
        if outcome.delta is not None and (outcome.delta.added or outcome.delta.removed):
            sent = self._send(spu, outcome.delta, incidents)
        while joining:
            spu.waiting -= 1
            self._welcome(spu, joining.pop(0), outcome)
            sent += 1
        if not spu.stale:  # no relevant commit since the start of the evaluation
            for subscriber in spu.subscribers.values():
                self.caught_up(subscriber.spuid, subscriber.sequence - 1)
        return sent

    def _welcome(self, spu: ReevaluatedSpu, joining: Joining, outcome: Evaluated) -> None:
        """Give a new subscriber the whole result."""
        subscriber = joining.subscriber
        self._enter(spu, subscriber)
        spu.clients[subscriber.client] += 1
        if not joining.silent:
            assert outcome.whole is not None  # noqa: S101
            lost = subscriber.notify(outcome.whole)
            if lost is not None:
                self.destroy(subscriber.spuid)
                joining.ready(lost)
                return
        joining.ready(Subscription(subscriber.spuid, subscriber.alias))

    def _follow(self, spu: ReevaluatedSpu, depends: Dependencies, job: Job) -> None:
        """Watch the current dependencies of the result."""
        if spu.ended or set(spu.depends.watches) == set(depends.watches):
            return
        self._unwatch(spu)
        self._watch(spu, depends)
        if self.reevaluation.version != job.version:  # an update before the new watches may affect the result
            self.reevaluation.mark(spu, job.at)

    def _watch(self, spu: ReevaluatedSpu, depends: Dependencies) -> None:
        spu.depends = depends
        for key in spu.keys(self._world):
            self._watchers.add(key, spu)
        if depends.graph_names:
            self._graph_watchers[spu] = None

    def _unwatch(self, spu: ReevaluatedSpu) -> None:
        for key in spu.keys(self._world):
            self._watchers.remove(key, spu)
        self._graph_watchers.pop(spu, None)


def _key(query: Member) -> tuple[QueryPlan, tuple[Term, ...]]:
    return query.plan, tuple(query.constants)
