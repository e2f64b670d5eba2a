"""What a gate needs of the engine, no more: the part of the scheduler's interface that clients can reach."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from edge.engine.performance import Figures
from edge.engine.requests import Answer, QueryRequest, Sink, Subscription, UpdateOutcome, UpdateRequest
from edge.engine.resume.recovery import Restored
from edge.engine.settings import Booster, Processing
from edge.engine.subscriptions.explanation import Explanation
from edge.protocol.access import Access
from edge.protocol.moments import When
from edge.protocol.timers import Scheduled, Timer, TimerState

T = TypeVar("T")


class SparqlEngine(Protocol):
    """Queries and updates. Errors, in the futures or raised, are of the tree in `edge.protocol.errors`."""

    def update(self, requests: list[UpdateRequest], /) -> Future[list[UpdateOutcome]]:
        """Run updates; done when they are durable."""

    def read(self, request: QueryRequest, read: Callable[[Answer], T], /) -> Future[T]:
        """Answer a query over the state at some moment between the call and the result.

        `read` takes the answer in on a thread of the engine; what it returns or raises is the future's.
        """

    def schedule(self, request: UpdateRequest, when: When, name: str | None, /) -> Future[Scheduled]:
        """Have an update run later; done when that is durable."""

    def cancel(self, name: str, who: Access, client: str | None, /) -> Future[None]:
        """Have a delayed update of `who` not run, or where it may administer that of another client."""

    def timer(self, name: str, who: Access, client: str | None, /) -> Future[Timer]:
        """A delayed update, or what became of it; whose it is as with `cancel`."""

    def timers(self, state: TimerState | None, limit: int, who: Access, /) -> Future[list[Timer]]:
        """Delayed updates that `who` may see: those that wait, then what became of others."""


class SessionEngine(SparqlEngine, Protocol):
    """Subscriptions, too."""

    def subscribe(
        self, query: QueryRequest, sink: Sink, /, alias: str | None = None, *, keep: bool = False
    ) -> Future[Subscription]:
        """Subscribe; the first notification goes to the sink before the future is done. `keep`: also over a restart."""

    def take_over(self, sink: Callable[[str], Sink], /) -> Future[list[Restored]]:
        """The subscriptions that were kept over a restart, each with a sink from now on. To be called once."""

    def transfer(self, spuid: str, client: str, /) -> Future[None]:
        """Have a subscription count for another client, which goes on with it."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class OperatedEngine(SparqlEngine, Protocol):
    """What operators see of the engine, and the one thing that they decide while it runs."""

    processing: Processing
    """It may be set at any time."""

    def explain(self, query: QueryRequest, /) -> Future[Explanation]:
        """Say how a subscription to a query is, or would be, kept up to date."""

    @property
    def booster(self) -> Booster:
        """Whether subscribed queries are moved by the delta rules."""

    @property
    def spu_workers(self) -> int:
        """Threads that evaluate subscribed queries when processing is parallel."""

    @property
    def subscriptions(self) -> int:
        """Active subscriptions."""

    @property
    def spus(self) -> int:
        """SPUs that serve them."""

    @property
    def pending_updates(self) -> int:
        """Updates that wait or are being carried out."""

    @property
    def figures(self) -> Figures:
        """What the updates so far have cost, phase by phase."""
