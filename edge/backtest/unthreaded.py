"""The engine of a backtest for components that wait for its answers: each request is carried out at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from edge.engine.requests import ActiveSubscription, QueryRequest, QueryResult, Sink, UpdateOutcome, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler

T = TypeVar("T")


class UnthreadedEngine:
    """An engine that was opened with `start=False`. See `AdapterEngine` and `LiveEngine`."""

    def __init__(self, engine: Scheduler) -> None:
        self._engine = engine

    def update(self, requests: Sequence[UpdateRequest]) -> Future[list[UpdateOutcome]]:
        """Run updates in one transaction."""
        return self._done(self._engine.update(requests))

    def write(
        self, requests: Sequence[UpdateRequest], receipt: bytes, done: Callable[[Exception | None], None]
    ) -> None:
        """Queue updates as one transaction; `carry_out` runs them."""
        self._engine.write(requests, receipt, done)

    def carry_out(self, *, wait: bool = False) -> None:
        """Run the queued updates, and all that they cause."""
        self._engine.drain()

    def query(self, request: QueryRequest) -> Future[QueryResult]:
        """Evaluate a query."""
        return self._done(self._engine.query(request))

    def subscribe(self, query: QueryRequest, sink: Sink, *, awaited: bool = False) -> Future[ActiveSubscription]:
        """Subscribe; the sink has the first result when this returns."""
        return self._done(self._engine.subscribe(query, sink, awaited=awaited))

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription."""
        return self._done(self._engine.unsubscribe(spuid))

    def _done(self, future: Future[T]) -> Future[T]:
        while not future.done():
            self._engine.turn()
        return future
