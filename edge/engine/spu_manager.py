"""The SPU manager: creates, activates and destroys SPUs (SEPA paper, section 4.4).

Creator: a new query gets an SPU, an equal one joins it. Activator: a change of the graph reaches the SPUs that the LUTT
names and no others. Destroyer: an SPU goes with its last subscriber.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from edge.engine.evaluator import World, compile_evaluator
from edge.engine.graph import Quad
from edge.engine.lutt import Lutt
from edge.engine.requests import Dataset, QueryRequest, Sink, Subscription
from edge.engine.spu import Change, Spu, Subscriber, inverse
from edge.protocol.errors import EdgeError, NotFound


@dataclass(frozen=True, slots=True)
class Activation:
    """What one update did to one SPU: a change, or the reason why its query could not be evaluated."""

    spu: Spu
    change: Change | None
    failure: str = ""


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
            spu.refresh(self._world, now)
            self._spus[key] = spu
            self._watch(spu)
        subscriber = Subscriber(f"sepa://subscription/{uuid.uuid4()}", alias, sink)
        spu.subscribers[subscriber.spuid] = subscriber
        self._by_spuid[subscriber.spuid] = key
        subscriber.notify(spu.delta(self._world, Change(added=spu.bag, removed=type(spu.bag)())))
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
            spu.apply(self._world, Change(added=type(spu.bag)(), removed=spu.bag.copy()))

    def activate(self, quads: Iterable[Quad], *, graphs_changed: bool, now: int) -> list[Activation]:
        """Let every SPU that the changed quads concern compute its new result. Returns those whose result changed."""
        hit = self._lutt.hits(quads)
        if graphs_changed:
            hit.update(self._graph_watchers)
        activations: list[Activation] = []
        for spu in hit:
            try:
                change = spu.refresh(self._world, now)
            except EdgeError as error:
                activations.append(Activation(spu, None, error.description))
                continue
            if change.added or change.removed:
                activations.append(Activation(spu, change))
                self._watch_anew(spu)
        return activations

    def undo(self, activations: Iterable[Activation]) -> None:
        """Take back what `activate` did, in reverse order of updates."""
        for activation in activations:
            if activation.change is not None:
                activation.spu.apply(self._world, inverse(activation.change))

    def notify(self, activations: Iterable[Activation]) -> int:
        """Tell the subscribers. Returns how many notifications went out."""
        sent = 0
        for activation in activations:
            spu = activation.spu
            if activation.change is None:
                for subscriber in spu.subscribers.values():
                    subscriber.fail(activation.failure)
                continue
            delta = spu.delta(self._world, activation.change)
            for subscriber in spu.subscribers.values():
                subscriber.notify(delta)
            sent += len(spu.subscribers)
        return sent

    def _watch(self, spu: Spu) -> None:
        depends = spu.evaluator.dependencies()
        spu.keys = self._lutt.add(depends.watches, spu)
        if depends.graph_names:
            self._graph_watchers[spu] = None

    def _unwatch(self, spu: Spu) -> None:
        self._lutt.remove(spu.keys, spu)
        self._graph_watchers.pop(spu, None)

    def _watch_anew(self, spu: Spu) -> None:
        """Some results decide what they depend on."""
        if spu.evaluator.moving:
            self._unwatch(spu)
            self._watch(spu)
