"""Delivery of notifications, and the end of subscriptions that failed."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.faults import Incidents
from edge.engine.queries.evaluator import World
from edge.engine.requests import Delta
from edge.engine.subscriptions.deferred_first_result import DeferredFirstResult
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.spu import Spu, Subscriber
from edge.engine.subscriptions.spu_registry import SpuRegistry
from edge.protocol.errors import EdgeError, ResultTooLarge


class NotificationDelivery:
    """Delivery of notifications to the subscribers of SPUs."""

    def __init__(self, world: World, registry: SpuRegistry) -> None:
        self._world = world
        self._registry = registry
        self.faults = 0
        """Number of subscriptions that ended by a fault of the gateway."""

    def send(self, spu: Spu, delta: Delta, incidents: Incidents) -> int:
        """Notify the subscribers of an SPU."""
        return self.notify(list(spu.subscribers.values()), delta, incidents)

    def notify(self, subscribers: Sequence[Subscriber], delta: Delta, incidents: Incidents) -> int:
        """Notify subscribers, and end subscriptions with a failed sink. Return the number of notifications."""
        sent = len(subscribers)
        lost: list[tuple[Subscriber, Exception]] = []
        for subscriber in subscribers:
            fault = subscriber.notify(delta)
            if fault is not None:
                lost.append((subscriber, fault))
        for subscriber, fault in lost:
            self.faults += 1
            subscriber.fail(incidents.reason(fault, "notifying"))
            self._registry.destroy(subscriber.spuid)
        return sent

    def end(self, spu: Spu, reason: str) -> None:
        """Notify the subscribers of an SPU of its failure, and destroy it."""
        if isinstance(spu, IncrementalSpu):
            for deferred in list(spu.deferred_results):
                self.abandon(spu, deferred, EdgeError(reason) if spu.faulty else ResultTooLarge(reason))
        for subscriber in list(spu.subscribers.values()):
            self.faults += spu.faulty
            subscriber.fail(reason)
            self._registry.destroy(subscriber.spuid)

    def abandon(self, spu: IncrementalSpu, deferred: DeferredFirstResult, error: Exception) -> None:
        """Reject the subscribers that wait for a first result."""
        if not deferred.over:
            spu.abandon(self._world, deferred)
        while deferred.pending:
            deferred.pending.pop(0).ready(error)
        self._registry.end_idle(spu)

    def end_damaged(self) -> None:
        """End the SPUs that an error stopped half-way and that are not part of a pending update."""
        # A copy, because `end` removes the SPU from the collection.
        for spu in list(self._registry.damaged):
            self.end(spu, spu.failure)
