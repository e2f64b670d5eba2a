"""Interface of the followers of queries and rules, and the follower of a SPARQL query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edge.backtest.change import Change
from edge.backtest.unthreaded import UnthreadedEngine
from edge.engine.clock import SimulatedClock
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification
from edge.protocol.errors import InvalidRequest


class Follower(Protocol):
    """Follows a query or a rule from its start on. The replay moves the clock."""

    def start(self) -> Sequence[str]:
        """Begin at the time of the clock, and return the variables. Raises `EdgeError`."""

    def due(self) -> int | None:
        """Return the time at which `tick` has something to do without a further value; None: nothing is due."""

    def tick(self) -> None:
        """Do what is due at the time of the clock. Raises `EdgeError`."""

    def take(self) -> list[Change]:
        """Return the changes since the last call. Raises `EdgeError` if no more can come."""

    def close(self) -> None:
        """Release what it holds."""


class QueryFollower:
    """Follows a SPARQL query: a subscription."""

    def __init__(self, engine: UnthreadedEngine, clock: SimulatedClock, sparql: str) -> None:
        self._engine = engine
        self._clock = clock
        self._sparql = sparql
        self._changes: list[Change] = []
        self._variables: Sequence[str] = ()
        self._failure = ""

    def start(self) -> Sequence[str]:
        """See `Follower`."""
        self._engine.subscribe(QueryRequest(self._sparql), self._sink).result()
        return self._variables

    def due(self) -> int | None:
        """Return None: only values change a result."""
        return None

    def tick(self) -> None:
        """Do nothing."""

    def take(self) -> list[Change]:
        """See `Follower`."""
        if self._failure:
            raise InvalidRequest(self._failure)
        changes, self._changes = self._changes, []
        return changes

    def close(self) -> None:
        """Do nothing: the subscription ends with the engine."""

    def _sink(self, event: SubscriberNotification | SubscribeFailed) -> None:
        if isinstance(event, SubscribeFailed):
            self._failure = event.description
            return
        delta, time = event.delta, self._clock.at
        self._variables = delta.variables
        self._changes += [Change(time, event.sequence, "removed", row) for row in delta.removed]
        self._changes += [Change(time, event.sequence, "added", row) for row in delta.added]
