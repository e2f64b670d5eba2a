"""The SPU manager: creates, activates and destroys SPUs (SEPA paper, section 4.4).

Creator: a new query gets an SPU, an equal one joins it. Activator: a change of the graph reaches the SPUs that the LUTT
names and no others. Destroyer: an SPU goes with its last subscriber.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edge.engine.delta import IdRow, Touched, difference
from edge.engine.evaluator import World, compile_evaluator
from edge.engine.general import too_many
from edge.engine.lutt import Dependencies, Lutt
from edge.engine.requests import Dataset, QueryRequest, Sink, Subscription
from edge.engine.spu import NOTHING, Change, Spu, Subscriber
from edge.engine.update import Transaction
from edge.protocol.errors import EdgeError, NotFound, ResultTooLarge


@dataclass(frozen=True, slots=True)
class Activation:
    """What one update did to one SPU: a change, or the reason why its query could not be evaluated."""

    spu: Spu
    moved: Change
    """Of the bag."""
    told: Change
    """To the subscribers: the same, unless the query is DISTINCT."""
    failure: str = ""
    depended: Dependencies | None = None
    """What the SPU was watched for before, if that has changed."""


class SpuManager:
    """All SPUs of an engine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lutt: Lutt[Spu] = Lutt(world.graph)
        self._graph_watchers: dict[Spu, None] = {}
        self._spus: dict[tuple[str, Dataset], Spu] = {}
        self._by_spuid: dict[str, tuple[str, Dataset]] = {}

    @property
    def subscriptions(self) -> int:
        """How many subscriptions are active."""
        return len(self._by_spuid)

    @property
    def spus(self) -> int:
        """How many SPUs serve them."""
        return len(self._spus)

    def create(self, request: QueryRequest, sink: Sink, alias: str | None, now: int) -> Subscription:
        """Subscribe. The sink gets the whole result as sequence 0. Raises `ParsingFailed`, `Forbidden`."""
        key = (request.sparql, request.dataset)
        spu = self._spus.get(key)
        if spu is None:
            spu = Spu(compile_evaluator(request, self._world.rules))
            spu.apply(self._world, Change(spu.evaluator.evaluate(self._world, now), Counter()))
            self._spus[key] = spu
            self._watch(spu, spu.evaluator.dependencies())
        subscriber = Subscriber(f"sepa://subscription/{uuid.uuid4()}", alias, sink)
        spu.subscribers[subscriber.spuid] = subscriber
        self._by_spuid[subscriber.spuid] = key
        subscriber.notify(spu.delta(self._world, spu.whole()))
        return Subscription(subscriber.spuid, alias)

    def destroy(self, spuid: str) -> None:
        """Unsubscribe. Raises `NotFound`."""
        key = self._by_spuid.pop(spuid, None)
        if key is None:
            raise NotFound(f"There is no subscription {spuid}")
        spu = self._spus[key]
        del spu.subscribers[spuid]
        if not spu.subscribers:
            del self._spus[key]
            self._unwatch(spu)
            spu.apply(self._world, Change(added=Counter(), removed=spu.bag.copy()))

    def activate(self, transaction: Transaction, now: int) -> list[Activation]:
        """Let every SPU that the transaction concerns compute its new result. Returns those that it moved.

        Whatever is raised, none has moved then.
        """
        quads = transaction.quads
        hit = self._lutt.hits(quads)
        if transaction.graphs:
            hit.update(self._graph_watchers)
        touched = {spu: part for spu in hit if (part := spu.touched(self._world, quads)) is not None}
        activations: list[Activation] = []
        try:
            activations.extend(self._move_touched(touched, transaction, now))
            for spu in hit:
                if spu not in touched:
                    activations.extend(self._move_whole(spu, now))
        except BaseException:
            self.undo(activations)
            raise
        return activations

    def _move_touched(self, touched: Mapping[Spu, Touched], transaction: Transaction, now: int) -> Iterator[Activation]:
        if not touched:
            return
        new = [self._solutions(part) for part in touched.values()]
        with transaction.reverted():
            old = [self._solutions(part) for part in touched.values()]
        for spu, before, after in zip(touched, old, new, strict=True):
            if before is None or after is None:
                yield from self._move_whole(spu, now)
                continue
            change = Change(*difference(before, after, spu.evaluator.columns))
            if len(spu.bag) + len(change.added) - len(change.removed) > self._world.rules.max_solutions:
                yield Activation(spu, NOTHING, NOTHING, too_many(self._world.rules).description)
            elif change:
                yield Activation(spu, change, spu.move(self._world, change))

    def _solutions(self, part: Touched) -> set[IdRow] | None:
        """The touched solutions; None: too many."""
        try:
            return part.solutions(self._world.graph, self._world.rules)
        except ResultTooLarge:
            return None

    def _move_whole(self, spu: Spu, now: int) -> Iterator[Activation]:
        try:
            new = spu.evaluator.evaluate(self._world, now)
        except EdgeError as error:
            yield Activation(spu, NOTHING, NOTHING, error.description)
            return
        change = Change(added=new - spu.bag, removed=spu.bag - new)
        depended = self._watch_anew(spu) if spu.evaluator.moving else None
        if change or depended:
            yield Activation(spu, change, spu.move(self._world, change), depended=depended)

    def undo(self, activations: Iterable[Activation]) -> None:
        """Take back what `activate` did, in reverse order of updates."""
        for activation in activations:
            activation.spu.apply(self._world, activation.moved.inverse())
            if activation.depended is not None:
                self._unwatch(activation.spu)
                self._watch(activation.spu, activation.depended)

    def notify(self, activations: Iterable[Activation]) -> int:
        """Tell the subscribers; those of a query that failed are ended. Returns how many notifications went out."""
        sent = 0
        for activation in activations:
            subscribers = activation.spu.subscribers.values()
            if activation.failure:
                for subscriber in list(subscribers):
                    subscriber.fail(activation.failure)
                    self.destroy(subscriber.spuid)
            elif activation.told:
                delta = activation.spu.delta(self._world, activation.told)
                for subscriber in subscribers:
                    subscriber.notify(delta)
                sent += len(subscribers)
        return sent

    def _watch(self, spu: Spu, depends: Dependencies) -> None:
        spu.depends = depends
        spu.keys = self._lutt.add(depends.watches, spu)
        if depends.graph_names:
            self._graph_watchers[spu] = None

    def _unwatch(self, spu: Spu) -> None:
        self._lutt.remove(spu.keys, spu)
        self._graph_watchers.pop(spu, None)

    def _watch_anew(self, spu: Spu) -> Dependencies | None:
        """Some results decide what they depend on. Returns what it was before, None if that is still so."""
        before, now = spu.depends, spu.evaluator.dependencies()
        if set(before.watches) == set(now.watches):
            return None
        self._unwatch(spu)
        self._watch(spu, now)
        return before
