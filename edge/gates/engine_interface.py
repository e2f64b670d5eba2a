"""Interface of the engine for gates: the part of the scheduler that clients can reach."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from edge.engine.admission.limit_usage import LimitUsage
from edge.engine.performance import Figures
from edge.engine.requests import (
    ActiveSubscription,
    Answer,
    GraphWatch,
    QueryRequest,
    Sink,
    UpdateOutcome,
    UpdateRequest,
)
from edge.engine.resume.recovery import RestoredSubscription
from edge.engine.settings import Booster, Processing
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.spu_report import Cost, SpuReports
from edge.protocol.access import Access
from edge.protocol.due_time import When
from edge.protocol.timers import TimerConfirmation, TimerRecord, TimerState

T = TypeVar("T")


class SparqlEngine(Protocol):
    """Queries and updates. All errors are classes of `edge.protocol.errors`, raised or in the future."""

    def update(self, requests: list[UpdateRequest], /) -> Future[list[UpdateOutcome]]:
        """Run updates; completes when they are durable."""

    def read(self, request: QueryRequest, read: Callable[[Answer], T], /) -> Future[T]:
        """Evaluate a query on one state of the graph between the call and the result.

        `read` processes the answer on an engine thread; the future gets its return value or exception.
        """

    def schedule(self, request: UpdateRequest, when: When, name: str | None, /) -> Future[TimerConfirmation]:
        """Schedule a delayed update; completes when it is durable."""

    def cancel(self, name: str, who: Access, client: str | None, /) -> Future[None]:
        """Cancel a delayed update of `who`, or, for administrators, of another client."""

    def timer(self, name: str, who: Access, client: str | None, /) -> Future[TimerRecord]:
        """Return the state of a delayed update, with the same permissions as `cancel`."""

    def timers(self, state: TimerState | None, limit: int, who: Access, /) -> Future[list[TimerRecord]]:
        """Return the delayed updates visible to `who`: pending ones first, then finished ones."""


class SubscribingEngine(SparqlEngine, Protocol):
    """Queries, updates and subscriptions."""

    def subscribe(
        self, query: QueryRequest, sink: Sink, /, alias: str | None = None, *, keep: bool = False
    ) -> Future[ActiveSubscription]:
        """Subscribe; the sink gets the first notification before the future completes. `keep`: survive a restart."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class SessionEngine(SubscribingEngine, Protocol):
    """Engine for sessions, whose subscriptions can outlive a connection."""

    def take_over(self, sink: Callable[[str], Sink], /) -> Future[list[RestoredSubscription]]:
        """Return the subscriptions that survived a restart, and give each a sink. Call this once."""

    def transfer(self, spuid: str, client: str, /) -> Future[None]:
        """Charge a subscription to another client, which resumes it."""


class OperatedEngine(SubscribingEngine, Protocol):
    """Engine for HTTP: watches of graphs, the operator's view, and the setting that can change at run time."""

    processing: Processing
    """Can be set at any time."""

    def watch(self, graph: str, who: Access, source: str, /) -> Future[GraphWatch]:
        """Begin to watch a graph (an IRI, or empty for the default graph), for the condition of an update.

        A query that begins later reads the state of the graph at the start of the watch, or a later one.
        """

    def explain(self, query: QueryRequest, /) -> Future[Explanation]:
        """Explain how the engine evaluates a subscription to a query."""

    @property
    def booster(self) -> Booster:
        """Whether incremental evaluation is used."""

    @property
    def spu_workers(self) -> int:
        """Number of threads that evaluate subscribed queries with parallel processing."""

    @property
    def subscriptions(self) -> int:
        """Number of active subscriptions."""

    @property
    def spus(self) -> int:
        """Number of SPUs that serve them."""

    @property
    def pending_updates(self) -> int:
        """Number of waiting and running updates."""

    @property
    def loads(self) -> tuple[LimitUsage, ...]:
        """Use of the limits of the settings."""

    def spu_reports(self, cost: Cost, most: int, /) -> SpuReports:
        """Return the most expensive subscribed queries. It takes up to 50 ms on a Raspberry Pi."""

    @property
    def figures(self) -> Figures:
        """Cost of the updates so far, by phase."""
