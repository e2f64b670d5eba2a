"""The SPU manager: creates, activates and destroys SPUs (SEPA paper, section 4.4).

Creator: a new query gets an SPU, an equal one joins it. Activator: a change of the graph reaches the SPUs that the LUTT
names and no others. Destroyer: an SPU goes with its last subscriber.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from edge.engine.booster import QueryPlan
from edge.engine.boosting import Boosting, Changes
from edge.engine.evaluation import InTurn, Outcome, Pool, begin_all
from edge.engine.evaluator import World
from edge.engine.explain import explain_member, explain_singular
from edge.engine.explanation import Explanation
from edge.engine.family import Family, FamilyTrigger, Room, open_places
from edge.engine.lutt import Dependencies, Lutt
from edge.engine.operators.stages import Row, Weights
from edge.engine.performance import PerformanceModel, clock
from edge.engine.query_plans import Member, QueryPlans, Singular
from edge.engine.requests import QueryRequest, Sink, Subscription
from edge.engine.spu import BoostedSpu, ReevaluatedSpu, Spu, Subscriber
from edge.engine.tables import Lines, Table
from edge.engine.update import Transaction
from edge.protocol.errors import EdgeError, NotFound, ResultTooLarge


@dataclass(slots=True)
class Activation:
    """What one update did to one SPU: changed rows, or the reason why its query could not be evaluated."""

    spu: Spu
    told: Weights
    moved: Weights
    """The solutions that a boosted SPU has taken in."""
    lines: Lines = field(default_factory=dict)
    """The lines that another one has taken in."""
    failure: str = ""
    depended: Dependencies | None = None
    """What the SPU was watched for before, if that has changed."""


class SpuManager:
    """All SPUs of an engine."""

    def __init__(self, world: World, plans: QueryPlans, performance: PerformanceModel) -> None:
        self._world = world
        self._effort = world.graph.effort
        self._plans = plans
        self._performance = performance
        self._triggers: Lutt[FamilyTrigger] = Lutt(world.graph)
        self._watchers: Lutt[ReevaluatedSpu] = Lutt(world.graph)
        self._graph_watchers: dict[Spu, None] = {}
        self._room = Room(world.rules.max_remembered)
        self._families: dict[tuple[QueryPlan, Row], Family] = {}
        self._singular: dict[Singular, ReevaluatedSpu] = {}
        self._by_spuid: dict[str, Spu] = {}
        self._count = 0
        self.pool: Pool = InTurn()
        """Who evaluates queries anew. Whoever has threads puts them here."""

    @property
    def subscriptions(self) -> int:
        """How many subscriptions are active."""
        return len(self._by_spuid)

    @property
    def spus(self) -> int:
        """How many SPUs serve them."""
        return self._count

    # Creator and Destroyer

    def create(self, request: QueryRequest, sink: Sink, alias: str | None, now: int) -> Subscription:
        """Subscribe. The sink gets the whole result as sequence 0. Raises `ParsingFailed`, `Forbidden`."""
        spu, result = self._join(request, now)
        if result is None:
            result = spu.result(self._world)
        subscriber = Subscriber(f"sepa://subscription/{uuid.uuid4()}", alias, sink)
        self._enter(spu, subscriber)
        subscriber.notify(spu.delta(self._world, result))
        return Subscription(subscriber.spuid, alias)

    def resume(self, request: QueryRequest, sink: Sink, spuid: str, sequence: int, now: int) -> tuple[str, ...]:
        """Go on with a subscription of another process, which was told the result as it is up to `sequence`.

        The sink gets nothing yet. Returns the columns of the result. Raises what `create` does.
        """
        spu, _ = self._join(request, now)
        self._enter(spu, Subscriber(spuid, None, sink, sequence + 1))
        return spu.variables

    def redirect(self, spuid: str, sink: Sink) -> None:
        """Send what a subscription is told elsewhere."""
        self._by_spuid[spuid].subscribers[spuid].sink = sink

    def last(self, spuid: str) -> int | None:
        """The number of the last notification of a subscription; None: it has ended."""
        spu = self._by_spuid.get(spuid)
        return None if spu is None else spu.subscribers[spuid].sequence - 1

    def is_boosted(self, spuid: str) -> bool:
        """Whether the delta rules serve a subscription."""
        return isinstance(self._by_spuid[spuid], BoostedSpu)

    def _enter(self, spu: Spu, subscriber: Subscriber) -> None:
        spu.subscribers[subscriber.spuid] = subscriber
        self._by_spuid[subscriber.spuid] = spu

    def _join(self, request: QueryRequest, now: int) -> tuple[Spu, Weights | None]:
        """The SPU of a query, and the whole result if it is a new one."""
        found = self._plans.find(request)
        return self._join_family(found) if isinstance(found, Member) else self._join_singular(found, now)

    def destroy(self, spuid: str) -> None:
        """Unsubscribe. Raises `NotFound`."""
        spu = self._by_spuid.pop(spuid, None)
        if spu is None:
            raise NotFound(f"There is no subscription {spuid}")
        del spu.subscribers[spuid]
        if not spu.subscribers:
            if isinstance(spu, BoostedSpu):
                self._leave_family(spu)
            else:
                assert isinstance(spu, ReevaluatedSpu)  # noqa: S101
                del self._singular[spu.query]
                self._unwatch(spu)
            self._graph_watchers.pop(spu, None)
            spu.end(self._world)
            self._count -= 1

    def _family(self, found: Member) -> tuple[Family, Row]:
        """The family of a query, a new one if it is the first, and the open constants that make it a member."""
        plan = found.plan
        intern = self._world.graph.dictionary.intern
        places = open_places(plan)
        ids = [(intern(term), place) for term, (_, place) in zip(found.constants, plan.layout.parameters, strict=True)]
        open_ = tuple(term_id for term_id, place in ids if place in places)
        closed = tuple(None if place in places else term_id for term_id, place in ids)
        family = self._families.get((plan, closed))
        return Family(plan, self._world.graph, closed, self._room) if family is None else family, open_

    def _join_family(self, found: Member) -> tuple[Spu, Weights | None]:
        family, open_ = self._family(found)
        member = family.members.get(open_)
        if member is not None:
            return member, None
        spu = BoostedSpu(family, open_, self._world)
        try:
            result = spu.begin(self._world)
        except BaseException:
            spu.end(self._world)
            if not family.members:
                family.release()
            raise
        self._families[family.plan, family.closed] = family
        family.members[open_] = spu
        family.forget()
        for pattern, trigger in family.keys(open_):
            self._triggers.add(pattern, trigger)
        if family.plan.graph_names:
            self._graph_watchers[spu] = None
        self._count += 1
        return spu, result

    def _leave_family(self, spu: BoostedSpu) -> None:
        family = spu.family
        for pattern, trigger in family.keys(spu.open):
            self._triggers.remove(pattern, trigger)
        del family.members[spu.open]
        family.forget()
        if not family.members:
            del self._families[family.plan, family.closed]
            family.release()

    def _join_singular(self, found: Singular, now: int) -> tuple[Spu, Weights | None]:
        spu = self._singular.get(found)
        if spu is not None:
            return spu, None
        evaluator = self._plans.evaluator(found)
        table = self._world.read(evaluator, self._world.mirror.open(), now)
        spu = ReevaluatedSpu(found, evaluator, table, self._world)
        result = spu.begin(self._world)
        self._singular[found] = spu
        self._watch(spu, evaluator.dependencies(table))
        self._count += 1
        return spu, result

    # Explain

    def explain(self, request: QueryRequest) -> Explanation:
        """How a query is, or would be, kept up to date. Raises `ParsingFailed`, `Forbidden`."""
        found = self._plans.find(request)
        if isinstance(found, Singular):
            spu = self._singular.get(found)
            evaluator = self._plans.evaluator(found)
            depends = evaluator.dependencies() if spu is None else spu.depends
            return explain_singular(found, evaluator, depends, self._world, spu)
        family, open_ = self._family(found)
        try:
            return explain_member(request, family, open_, self._world)
        finally:
            if not family.members:
                family.release()

    # Activator

    def activate(self, transaction: Transaction, now: int) -> list[Activation]:
        """Let every SPU that the transaction concerns compute its new result. Returns those that it moved.

        Whatever is raised, none has moved then.
        """
        began = clock()
        hits = self._triggers.hits(transaction.quads)
        whole = dict.fromkeys(self._watchers.hits(transaction.quads)) if self._watchers else {}
        everything: list[BoostedSpu] = []
        if transaction.graphs:
            for spu in self._graph_watchers:
                if isinstance(spu, BoostedSpu):
                    everything.append(spu)
                elif isinstance(spu, ReevaluatedSpu):
                    whole[spu] = None
        found = clock()
        self._performance.note_lutt(found - began, len(hits) + len(whole))
        activations: list[Activation] = []
        try:
            begun = self._begin_anew(whole, now) if whole else []  # the delta rules work beside them
            if hits or everything:
                self._boost(hits, everything, transaction, activations)
            if begun:
                activations += self._evaluate_anew(begun)
        except BaseException:
            self.undo(activations)
            raise
        self._performance.note_booster(clock() - found)
        return activations

    def _boost(
        self,
        hits: Mapping[FamilyTrigger, Changes],
        everything: Collection[BoostedSpu],
        transaction: Transaction,
        activations: list[Activation],
    ) -> None:
        """Move the SPUs by the solutions that have changed, and list them."""
        boosting = Boosting(transaction, self._world.rules)
        boosting.run(hits, everything)
        self._effort.lift()  # what an SPU takes in it must take in whole
        for spu, failure in boosting.failures.items():
            activations.append(Activation(spu, {}, {}, failure=failure))
        for spu, moved in boosting.weights.items():
            if moved and spu not in boosting.failures:
                activations.append(self._moved(spu, moved))

    def _moved(self, spu: BoostedSpu, weights: Weights) -> Activation:
        try:
            return Activation(spu, spu.move(self._world, weights), weights)
        except ResultTooLarge as error:
            return Activation(spu, {}, {}, failure=error.description)

    def _begin_anew(
        self, spus: Collection[ReevaluatedSpu], now: int
    ) -> list[tuple[ReevaluatedSpu, Callable[[], Outcome]]]:
        """Have queries evaluated, all on the same state."""
        evaluators = [spu.evaluator for spu in spus]
        begun = begin_all(evaluators, self.pool, self._world, now)
        return list(zip(spus, begun, strict=True))

    def _evaluate_anew(self, begun: Iterable[tuple[ReevaluatedSpu, Callable[[], Outcome]]]) -> Iterator[Activation]:
        """Move the SPUs by what their queries have given."""
        for spu, finish in begun:
            table = finish()
            if isinstance(table, EdgeError):
                yield Activation(spu, {}, {}, failure=table.description)
                continue
            if isinstance(table, Exception):
                raise table
            changed = spu.difference(table)
            depended = self._watch_anew(spu, table) if spu.evaluator.moving else None
            if changed or depended:
                yield Activation(spu, spu.take(self._world, changed), {}, changed, depended=depended)

    def undo(self, activations: Iterable[Activation]) -> None:
        """Take back what `activate` did, in reverse order of updates."""
        for family in self._families.values():
            family.forget()
        self._effort.lift()
        for activation in activations:
            spu = activation.spu
            if isinstance(spu, BoostedSpu):
                spu.take({row: -weight for row, weight in activation.moved.items()})
            elif isinstance(spu, ReevaluatedSpu):
                spu.take(self._world, {line: -weight for line, weight in activation.lines.items()})
                if activation.depended is not None:
                    self._unwatch(spu)
                    self._watch(spu, activation.depended)

    def notify(self, activations: Iterable[Activation]) -> int:
        """Tell the subscribers; those of a query that failed are ended. Returns how many notifications went out."""
        sent = 0
        for activation in activations:
            subscribers = activation.spu.subscribers
            if activation.failure:
                for subscriber in list(subscribers.values()):
                    subscriber.fail(activation.failure)
                    self.destroy(subscriber.spuid)
            elif activation.told:
                delta = activation.spu.delta(self._world, activation.told)
                for subscriber in subscribers.values():
                    subscriber.notify(delta)
                sent += len(subscribers)
        return sent

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

    def _watch_anew(self, spu: ReevaluatedSpu, table: Table) -> Dependencies | None:
        """Some results decide what they depend on. Returns what it was before, None if that is still so."""
        before, now = spu.depends, spu.evaluator.dependencies(table)
        if set(before.watches) == set(now.watches):
            return None
        self._unwatch(spu)
        self._watch(spu, now)
        return before
