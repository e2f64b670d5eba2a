"""Actions that wait for the thread of the processor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from edge.engine.clock import Clock
from edge.protocol.errors import NotReady


class Action(NamedTuple):
    """An action, with the time of its arrival in microseconds since 1970."""

    arrival: int
    run: Callable[[int], bool]
    """Gets that time. Returns false if it has to wait for the end of a slide; then it has done nothing."""


class ActionQueue:
    """A queue of actions that can be closed. All threads may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._actions: deque[Action] = deque()
        self.is_closed = False

    def put(self, run: Callable[[int], bool]) -> None:
        """Add an action: see `Action`. Raises `NotReady` if the queue is closed."""
        with self._condition:
            if self.is_closed:
                raise NotReady("The gateway is stopping")
            self._actions.append(Action(self._clock.wall(), run))
            self._condition.notify()

    def take(self, seconds: float) -> Sequence[Action] | None:
        """Wait for actions at most so long, and return all of them; None: the queue is closed and empty."""
        with self._condition:
            if not self._actions and not self.is_closed and seconds:
                self._condition.wait(seconds)
            actions = list(self._actions)
            self._actions.clear()
            return None if self.is_closed and not actions else actions

    def time(self) -> int:
        """Return the time up to which nothing more arrives: of the first waiting action, or the present."""
        with self._condition:
            return self._actions[0].arrival if self._actions else self._clock.wall()

    def close(self) -> None:
        """Accept no further actions. Those that wait can still be taken."""
        with self._condition:
            self.is_closed = True
            self._condition.notify_all()
