"""What a gate needs of the engine, no more: the part of the scheduler's interface that clients can reach."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from edge.engine.explanation import Explanation
from edge.engine.requests import Answer, QueryRequest, Sink, Subscription, UpdateOutcome, UpdateRequest

T = TypeVar("T")


class SubscriptionEngine(Protocol):
    """Subscriptions. Errors, in the futures or raised, are of the tree in `edge.protocol.errors`."""

    def subscribe(self, query: QueryRequest, sink: Sink, /, alias: str | None = None) -> Future[Subscription]:
        """Subscribe; the first notification goes to the sink before the future is done."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class SparqlEngine(Protocol):
    """Queries and updates. Errors, in the futures or raised, are of the tree in `edge.protocol.errors`."""

    def read(self, request: QueryRequest, read: Callable[[Answer], T], /) -> Future[T]:
        """Answer a query over the state at some moment between the call and the result.

        `read` takes the answer in on a thread of the engine; what it returns or raises is the future's.
        """

    def explain(self, query: QueryRequest, /) -> Future[Explanation]:
        """Say how a subscription to a query is, or would be, kept up to date."""

    def update(self, requests: list[UpdateRequest], /) -> Future[list[UpdateOutcome]]:
        """Run updates; done when they are durable."""
