"""A subscription of the announcer: its events run on the announcer's thread, and it retries after failures."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol

from edge.backoff import Backoff, Retry
from edge.engine.requests import (
    ActiveSubscription,
    QueryRequest,
    Sink,
    SubscribeFailed,
    SubscriberNotification,
    UpdateOutcome,
    UpdateRequest,
)
from edge.protocol.errors import EdgeError

_log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(1.0, 60.0)
"""Bounds of the back-off for failed subscriptions, in seconds."""

Post = Callable[[Callable[[], None]], None]
"""Runs a function on the thread of the announcer."""


class Engine(Protocol):
    """Interface of the engine's scheduler for announcements."""

    def update(self, requests: list[UpdateRequest], /) -> Future[list[UpdateOutcome]]:
        """Run updates."""

    def subscribe(self, query: QueryRequest, sink: Sink, /) -> Future[ActiveSubscription]:
        """Send `sink` the result of a query, then each change."""

    def unsubscribe(self, spuid: str, /) -> Future[None]:
        """End a subscription."""


class Following:
    """One subscription. All methods belong to the announcer's thread, except `_sink` (engine thread)."""

    def __init__(
        self,
        engine: Engine,
        request: QueryRequest,
        post: Post,
        waiting: Callable[[], bool],
        take: Callable[[SubscriberNotification], None],
        failed: Callable[[str], None],
    ) -> None:
        """`waiting`: whether too many events wait; then the subscription starts again later. `failed` receives the
        reason of each failure.
        """
        self.request = request
        self.retry_at: float | None = None
        """Time of the next attempt; None: none is due."""
        self._engine = engine
        self._post = post
        self._waiting = waiting
        self._take = take
        self._on_failure = failed
        self._retry = Retry(_BACKOFF)
        self._run = 0
        """Number of the present subscription; events of an earlier one are ignored."""
        self._closed_run = 0
        self._spuid = ""
        self._subscribe()

    def attempt(self, now: float) -> None:
        """Subscribe again, if an attempt is due."""
        if self.retry_at is not None and self.retry_at <= now:
            self._subscribe()

    def close(self) -> None:
        """End the subscription."""
        self.retry_at = None
        self._run += 1
        spuid, self._spuid = self._spuid, ""
        if spuid:
            with contextlib.suppress(EdgeError):  # a stopping engine ends all subscriptions itself
                self._engine.unsubscribe(spuid)

    def _subscribe(self) -> None:
        self.close()
        run = self._run
        try:
            future = self._engine.subscribe(self.request, partial(self._sink, run))
        except EdgeError as error:
            self._failed(run, error.description)
        else:
            future.add_done_callback(lambda done: self._post(partial(self._subscribed, run, done)))

    def _subscribed(self, run: int, future: Future[ActiveSubscription]) -> None:
        if (error := future.exception()) is not None:
            self._failed(run, error.description if isinstance(error, EdgeError) else str(error))
        elif run != self._run:  # closed while the subscription was being evaluated
            with contextlib.suppress(EdgeError):
                self._engine.unsubscribe(future.result().spuid)
        else:
            self._spuid = future.result().spuid
            self._retry.succeeded()

    def _sink(self, run: int, event: SubscriberNotification | SubscribeFailed) -> None:
        """Queue a notification from the engine thread, which never waits."""
        if run <= self._closed_run:
            return
        if self._waiting():
            self._closed_run = run
            self._post(partial(self._fell_behind, run))
        else:
            self._post(partial(self._receive, run, event))

    def _fell_behind(self, run: int) -> None:
        """Subscribe again later, because notifications were dropped."""
        if run == self._run:
            self.close()
            self.retry_at = time.monotonic() + self._retry.failed()

    def _receive(self, run: int, event: SubscriberNotification | SubscribeFailed) -> None:
        if run != self._run:
            return
        if isinstance(event, SubscribeFailed):
            self._spuid = ""
            self._failed(run, event.description)
        else:
            self._take(event)

    def _failed(self, run: int, reason: str) -> None:
        if run == self._run:
            self.retry_at = time.monotonic() + self._retry.failed()
            self._on_failure(reason)
