"""Writes readings into the graph, and follows the changes that clients make to observations."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import pyoxigraph as ox

from edge.adapters import updates
from edge.adapters.observation_cache import ObservationCache
from edge.adapters.planner import Arrival, HistorySelection, PlannedUpdates, Planner
from edge.adapters.settings import ObservationsSettings
from edge.adapters.terms import PREFIXES
from edge.engine.requests import (
    ActiveSubscription,
    QueryRequest,
    QueryResult,
    Sink,
    Solutions,
    SubscribeFailed,
    SubscriberNotification,
    UpdateOutcome,
    UpdateRequest,
)
from edge.mapping.reading import Reading
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)


Done = Callable[[PlannedUpdates | Exception], None]
"""Receives the plan of committed readings, or the error."""


class AdapterEngine(Protocol):
    """Interface of the engine's scheduler for adapters."""

    def update(self, requests: Sequence[UpdateRequest]) -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction."""
        ...

    def write(
        self, requests: Sequence[UpdateRequest], receipt: bytes, done: Callable[[Exception | None], None]
    ) -> None:
        """Queue updates as one transaction with `receipt`; `done` is called after the commit. Then call `carry_out`."""
        ...

    def carry_out(self, *, wait: bool = False) -> None:
        """Carry out waiting updates on this thread, if no other thread does, or `wait` for the end of its turn."""
        ...

    def query(self, request: QueryRequest) -> Future[QueryResult]:
        """Evaluate a query."""
        ...

    def subscribe(self, query: QueryRequest, sink: Sink, *, awaited: bool = False) -> Future[ActiveSubscription]:
        """Send `sink` the result of a query, then each change. `awaited`: before the answer to the update."""
        ...

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription."""
        ...


class Observations:
    """Writes readings into the graph with the semantics of ADD_OBSERVATION and UPDATE_VALUE (SEPA paper, Listing 18).

    A subscription keeps it informed about the graph. It adds an observation only if it is missing or its description
    in the mapping has changed, and otherwise only replaces the value. Changes by clients are preserved. Thread-safe.
    """

    def __init__(
        self,
        engine: AdapterEngine,
        settings: ObservationsSettings | None = None,
        *,
        history: HistorySelection | None = None,
        new_name: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """`history`: selects the readings that are stored in the history."""
        self._engine = engine
        self._planner = Planner(settings or ObservationsSettings(), new_name, history)
        self._lock = threading.RLock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._subscription: ActiveSubscription | None = None
        self._failure: str | None = None
        self.added = 0
        """Observations that were added, or whose description was replaced."""
        self.values = 0
        """Values that were written."""

    def start(self, timeout: float = 30.0) -> None:
        """Read the observations in the graph. Raises an `EdgeError`, or `TimeoutError` after `timeout` seconds."""
        self._failure = None
        request = QueryRequest(updates.OBSERVATIONS)
        self._subscription = self._engine.subscribe(request, self._sink, awaited=True).result(timeout)

    def close(self) -> None:
        """End the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._engine.unsubscribe(subscription.spuid)
            self._inbox.clear()

    def submit(self, arrivals: Iterable[Arrival], receipt: bytes, done: Done) -> None:
        """Write readings in one transaction with `receipt`. Afterwards `done` is called, with the plan or an error.

        `done` may be called before the method returns, and on another thread; it must not block. Raises the engine's
        `EdgeError`; then, as with an error for `done`, nothing has changed.
        """
        with self._lock:
            self._catch_up()
            plan = self._planner.plan(arrivals)
            if plan.requests:
                # With the lock, so that updates are executed in the order in which they are planned.
                self._queue(plan, receipt, done)
        if plan.requests:
            # Without the lock, because this may take as long as the updates of other clients.
            self._engine.carry_out()
        else:
            done(plan)

    def write(self, arrivals: Iterable[Arrival]) -> Future[PlannedUpdates]:
        """Write readings in one transaction. The future completes after the commit, or raises an `EdgeError`."""
        answer: Future[PlannedUpdates] = Future()
        self.submit(arrivals, b"", partial(_complete, answer))
        return answer

    def remember(self, receipt: bytes, done: Callable[[Exception | None], None]) -> None:
        """Store a receipt without readings. Errors are those of `submit`."""
        self._engine.write([], receipt, done)
        self._engine.carry_out()

    def carry_out_others(self) -> None:
        """Let one turn of the writer carry out the updates that wait, before more readings are submitted."""
        # Without waiting, the engine's thread could have begun its turn and still take the next readings first.
        self._engine.carry_out(wait=True)

    def declare(self, readings: Iterable[Reading]) -> PlannedUpdates:
        """Add the observations that mappings declare, before their first values (the initial mappings of the paper).

        The values of the readings are ignored. Existing, unchanged observations stay as they are. Waits for the
        commit, and blocks other writers until then: a value must not overtake its observation. Raises `EdgeError`.
        """
        with self._lock:
            self._catch_up()
            plan = self._planner.declare(readings)
            if plan.requests:
                try:
                    self._engine.update(plan.requests).result()
                except BaseException:
                    self._planner.give_up(plan)
                    raise
                self._count(plan)
        return plan

    def declared_for(self, topic: str) -> list[str]:
        """Return the IRIs of the observations that clients assigned to `topic` in the graph (the paper's Topics
        Manager).
        """
        with self._lock:
            self._catch_up()
            return self._planner.known.declared_for(topic)

    def has(self, observation: str) -> bool:
        """Return whether the graph has an observation."""
        with self._lock:
            self._catch_up()
            known = self._planner.known.find(observation)
            return known is not None and known.exists

    def topics_of(self, observation: str) -> set[str]:
        """Return the topics in the graph of an observation."""
        with self._lock:
            self._catch_up()
            known = self._planner.known.find(observation)
            return set() if known is None else known.topics

    @property
    def declared_topics(self) -> frozenset[str]:
        """All topics to which clients assigned observations in the graph."""
        with self._lock:
            self._catch_up()
            return self._planner.known.declared_topics

    def __len__(self) -> int:
        with self._lock:
            self._catch_up()
            return len(self._planner.known)

    def unchanged(self, arrivals: Sequence[Arrival], timeout: float = 30.0) -> set[int]:
        """Return the positions of readings whose value is in the graph already.

        Used for retained messages: they report a change in the past, so an equal value is not an event. An
        observation that occurs twice is always written.
        """
        occurrences = Counter(arrival.reading.observation for arrival in arrivals)
        targets: dict[str, int] = {}
        with self._lock:
            self._catch_up()
            for position, arrival in enumerate(arrivals):
                iri = arrival.reading.observation
                known = self._planner.known.find(iri)
                if known is not None and occurrences[iri] == 1:
                    targets.update({q.value: position for q in known.quantities if isinstance(q, ox.NamedNode)})
        if not targets:
            return set()
        values = " ".join(str(ox.NamedNode(iri)) for iri in targets)
        text = f"{PREFIXES}SELECT ?q ?v {{ VALUES ?q {{ {values} }} ?q qudt-1-1:numericValue ?v }}"
        result = self._engine.query(QueryRequest(text)).result(timeout)
        if not isinstance(result, Solutions):
            return set()
        wanted = {iri: self._planner.value(arrivals[position].reading) for iri, position in targets.items()}
        return {targets[q.value] for q, v in result.rows if isinstance(q, ox.NamedNode) and v == wanted[q.value]}

    def _sink(self, event: SubscriberNotification | SubscribeFailed) -> None:
        """Queue a notification. Runs on the engine's thread, so it must not block."""
        if isinstance(event, SubscribeFailed):
            self._failure = event.description
        else:
            self._inbox.append(lambda: self._learn(event))

    def _learn(self, event: SubscriberNotification) -> None:
        if event.sequence == 0:
            self._planner.known = ObservationCache()
        self._planner.known.apply(event.delta)

    def _catch_up(self) -> None:
        if self._failure is not None:
            self._resubscribe(self._failure)
        while self._inbox:
            self._inbox.popleft()()

    def _resubscribe(self, failure: str) -> None:
        """Subscribe again. If that fails, the known state of the graph stays as it was."""
        try:
            self.close()
            self.start()
        except (EdgeError, TimeoutError) as error:
            self._failure = failure
            _log.error("observations.subscription_failed", extra={"reason": failure, "again": str(error)})
        else:
            _log.warning("observations.subscribed_again", extra={"reason": failure})

    def _queue(self, plan: PlannedUpdates, receipt: bytes, done: Done) -> None:
        try:
            self._engine.write(plan.requests, receipt, partial(self._settle, plan, done))
        except BaseException:
            self._planner.give_up(plan)
            raise

    def _settle(self, plan: PlannedUpdates, done: Done, error: Exception | None) -> None:
        """Complete a write. Runs on the thread that carried it out, so it must not block."""
        if error is not None:
            self._inbox.append(lambda: self._planner.give_up(plan))
            done(error)
        else:
            self._count(plan)
            done(plan)

    def _count(self, plan: PlannedUpdates) -> None:
        self.added += len(plan.given)
        self.values += len(plan.requests)


def _complete(answer: Future[PlannedUpdates], outcome: PlannedUpdates | Exception) -> None:
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
