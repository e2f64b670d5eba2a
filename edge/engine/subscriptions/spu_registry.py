"""Registry of SPUs: by subscription, by query, and in the LUTT by the changes that affect them."""

from __future__ import annotations

from collections import Counter

from edge.engine.operators.stages import Row
from edge.engine.queries.evaluator import World
from edge.engine.queries.incremental_plan import QueryPlan
from edge.engine.queries.query_plans import PlanMember, Singular
from edge.engine.queries.subscription_index import Dependencies, SubscriptionIndex
from edge.engine.requests import Sink
from edge.engine.subscriptions.full_refresh import FullRefresh
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.plan_group import GroupTrigger, MemoLimit, PlanGroup, open_places
from edge.engine.subscriptions.reevaluated_spu import ReevaluatedSpu
from edge.engine.subscriptions.spu import Spu, Subscriber
from edge.protocol.errors import NotFound
from edge.protocol.results import Term


class SpuRegistry:
    """Registry of all SPUs of an engine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.triggers: SubscriptionIndex[GroupTrigger[IncrementalSpu]] = SubscriptionIndex(world.graph)
        self.watchers: SubscriptionIndex[ReevaluatedSpu] = SubscriptionIndex(world.graph)
        self.graph_watchers: dict[Spu, None] = {}
        """SPUs that a created or removed graph can affect."""
        self.memory = MemoLimit(world.rules.settings.max_remembered_bytes)
        self.groups: dict[tuple[QueryPlan, Row], PlanGroup[IncrementalSpu]] = {}
        """Plan groups, by plan and closed constants."""
        self.singular: dict[Singular, ReevaluatedSpu] = {}
        self._demoted: dict[tuple[QueryPlan, tuple[Term, ...]], ReevaluatedSpu] = {}
        """Demoted SPUs, by plan and constants."""
        self.refreshes: dict[FullRefresh, None] = {}
        self.by_spuid: dict[str, Spu] = {}
        """The SPU of each subscription."""
        self.awaited: set[str] = set()
        """Subscriptions that get their notifications before the clients get the answers to their updates."""
        self.count = 0
        """Number of SPUs, without refreshes."""
        self.damaged: dict[Spu, None] = {}
        """SPUs that an error stopped half-way."""

    def variables(self, spuid: str) -> tuple[str, ...]:
        """Return the columns of a subscription's result."""
        return self.by_spuid[spuid].variables

    def redirect(self, spuid: str, sink: Sink) -> None:
        """Replace the sink of a subscription."""
        self.by_spuid[spuid].subscribers[spuid].sink = sink

    def transfer(self, spuid: str, client: str) -> None:
        """Assign a subscription to another client, unless it has ended."""
        spu = self.by_spuid.get(spuid)
        if spu is None:
            return
        subscriber = spu.subscribers[spuid]
        if isinstance(spu, ReevaluatedSpu):
            spu.clients -= Counter((subscriber.client,))
            spu.clients[client] += 1
        spu.transfer(subscriber, client)

    def last(self, spuid: str) -> int | None:
        """Return the sequence number of the last notification; None if the subscription has ended."""
        spu = self.by_spuid.get(spuid)
        return None if spu is None else spu.subscribers[spuid].sequence - 1

    def is_current(self, spuid: str) -> bool:
        """Return whether a subscription has the result of the last commit."""
        spu = self.by_spuid[spuid]
        return isinstance(spu, IncrementalSpu) or (isinstance(spu, ReevaluatedSpu) and not (spu.stale or spu.busy))

    def is_incremental(self, spuid: str) -> bool:
        """Return whether a subscription uses incremental evaluation."""
        return isinstance(self.by_spuid[spuid], IncrementalSpu)

    def enter(self, spu: Spu, subscriber: Subscriber) -> None:
        """Add a subscriber to an SPU."""
        spu.subscribers[subscriber.spuid] = subscriber
        self.by_spuid[subscriber.spuid] = spu

    def destroy(self, spuid: str) -> None:
        """Unsubscribe. Raises `NotFound`."""
        spu = self.by_spuid.pop(spuid, None)
        if spu is None:
            raise NotFound(f"The subscription {spuid} does not exist")
        self.awaited.discard(spuid)
        subscriber = spu.subscribers[spuid]
        spu.leave(subscriber)
        if isinstance(spu, ReevaluatedSpu):
            spu.clients -= Counter((subscriber.client,))
            self.end_unused(spu)
        elif isinstance(spu, IncrementalSpu):
            self.end_idle(spu)

    def end_idle(self, spu: IncrementalSpu) -> None:
        """End an incremental SPU without subscribers and without clients that wait for its first result."""
        if spu.subscribers or spu.deferred_results or spu.ended:
            return
        self.detach(spu)
        self.release(spu)

    def release(self, spu: IncrementalSpu) -> None:
        """End a detached SPU, and its plan group if it was the last member."""
        self._forget_empty(spu.group)
        self.damaged.pop(spu, None)
        spu.end(self._world)
        self.count -= 1

    def end_unused(self, spu: ReevaluatedSpu) -> None:
        """End a re-evaluated SPU without subscribers and without clients that wait for its first result."""
        if spu.subscribers or spu.waiting or spu.ended:
            return
        if spu.demoted is None:
            del self.singular[spu.query]
        else:
            del self._demoted[_key(spu.demoted)]
        self.unwatch(spu)
        spu.end(self._world)
        self.count -= 1

    def demoted(self, query: PlanMember) -> ReevaluatedSpu | None:
        """Return the demoted SPU of a query with an incremental plan."""
        return self._demoted.get(_key(query)) if self._demoted else None

    def group(self, found: PlanMember) -> tuple[PlanGroup[IncrementalSpu], Row]:
        """Return the plan group of a query, or a new one, and the open constants of the query."""
        plan = found.plan
        intern = self._world.graph.dictionary.intern
        places = open_places(plan)
        ids = [(intern(term), place) for term, (_, place) in zip(found.constants, plan.layout.parameters, strict=True)]
        open_ = tuple(term_id for term_id, place in ids if place in places)
        closed = tuple(None if place in places else term_id for term_id, place in ids)
        group = self.groups.get((plan, closed))
        return PlanGroup(plan, self._world.graph, closed, self.memory) if group is None else group, open_

    def discard(self, group: PlanGroup[IncrementalSpu], spu: IncrementalSpu | None) -> None:
        """Release an SPU that could not be created."""
        if spu is not None:
            spu.end(self._world)
        if not group.members:
            group.release()

    def register(self, spu: IncrementalSpu) -> None:
        """Register an SPU and its plan group."""
        self.groups[spu.group.plan, spu.group.closed] = spu.group
        self.attach(spu)
        self.count += 1

    def attach(self, spu: IncrementalSpu) -> None:
        """Register an SPU of a known plan group for updates."""
        group = spu.group
        group.members[spu.open] = spu
        group.forget()  # cached solutions were assigned to the previous members
        for pattern, trigger in group.keys(spu.open):
            self.triggers.add(pattern, trigger)
        if group.plan.graph_names:
            self.graph_watchers[spu] = None

    def detach(self, spu: IncrementalSpu) -> None:
        """Remove an SPU from its plan group and from the LUTT."""
        group = spu.group
        for pattern, trigger in group.keys(spu.open):
            self.triggers.remove(pattern, trigger)
        del group.members[spu.open]
        group.forget()
        self.graph_watchers.pop(spu, None)

    def _forget_empty(self, group: PlanGroup[IncrementalSpu]) -> None:
        """Remove a plan group without members."""
        key = group.plan, group.closed
        if not group.members and self.groups.get(key) is group:
            del self.groups[key]
            group.release()

    def add(self, spu: ReevaluatedSpu) -> None:
        """Register a new re-evaluated SPU, and watch the dependencies of its query."""
        if spu.demoted is None:
            self.singular[spu.query] = spu
        else:
            self._demoted[_key(spu.demoted)] = spu
        self.watch(spu, spu.evaluator.dependencies())
        self.count += 1

    def watch(self, spu: ReevaluatedSpu, depends: Dependencies) -> None:
        """Watch these dependencies of a result."""
        spu.depends = depends
        for key in spu.keys(self._world):
            self.watchers.add(key, spu)
        if depends.graph_names:
            self.graph_watchers[spu] = None

    def unwatch(self, spu: ReevaluatedSpu) -> None:
        """Stop watching the dependencies of a result."""
        for key in spu.keys(self._world):
            self.watchers.remove(key, spu)
        self.graph_watchers.pop(spu, None)

    def end_refresh(self, refresh: FullRefresh) -> None:
        """Remove a full refresh without subscribers."""
        self.refreshes.pop(refresh, None)
        refresh.end(self._world)


def _key(query: PlanMember) -> tuple[QueryPlan, tuple[Term, ...]]:
    return query.plan, tuple(query.constants)
