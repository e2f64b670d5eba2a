"""Requests of rules to a running engine. Each waits for its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Protocol, TypeVar

from edge.engine.requests import UpdateOutcome, UpdateRequest
from edge.protocol.due_time import After, When
from edge.protocol.errors import NotFound, NotReady
from edge.protocol.timers import TimerConfirmation, TimerRecord

T = TypeVar("T")


class UpdateEngine(Protocol):
    """Interface of the engine's scheduler for the updates of rules."""

    def update(self, requests: Sequence[UpdateRequest]) -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction."""

    def schedule(self, request: UpdateRequest, when: When, name: str | None = None) -> Future[TimerConfirmation]:
        """Run an update later."""

    def cancel(self, name: str) -> Future[None]:
        """Cancel a delayed update."""

    def timer(self, name: str) -> Future[TimerRecord]:
        """Return a delayed update or its outcome."""


class EngineActions:
    """See `edge.automation.runner.RuleActions`."""

    def __init__(self, engine: UpdateEngine, turn: Callable[[], None] | None = None) -> None:
        """`turn`: lets an engine without a thread do its work; None: the engine has one."""
        self._engine = engine
        self._turn = turn

    def perform(self, requests: Sequence[UpdateRequest]) -> None:
        """Run updates in one transaction."""
        self.wait(self._engine.update(requests))

    def schedule(self, request: UpdateRequest, delay: int, name: str) -> None:
        """Schedule an update in `delay` microseconds."""
        self.wait(self._engine.schedule(request, After(delay), name))

    def cancel(self, name: str) -> bool:
        """Cancel a delayed update. Returns False if none with this id is pending."""
        try:
            self.wait(self._engine.cancel(name))
        except NotFound:
            return False
        return True

    def outcome(self, name: str) -> TimerRecord | None:
        """Return the record of a delayed update; None if it is not known any more."""
        try:
            return self.wait(self._engine.timer(name))
        except NotFound:
            return None

    def wait(self, future: Future[T]) -> T:
        """Return the result of a request. Raises its `EdgeError`, `NotReady`.

        Without a time limit: an update that is only late would be carried out twice if it were tried again.
        """
        while self._turn is not None and not future.done():
            self._turn()
        try:
            return future.result()
        except CancelledError:
            raise NotReady("The gateway is stopping") from None
