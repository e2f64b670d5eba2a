"""Rules on an engine without threads, with a simulated clock: by the code of a gateway, for dry runs and backtests."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from edge.automation.rule import Rule
from edge.automation.rule_actions import EngineActions
from edge.automation.rules import Rules
from edge.automation.runner import RuleActivity, SituationListener
from edge.automation.settings import AutomationSettings
from edge.engine.clock import SimulatedClock
from edge.engine.requests import UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.protocol.errors import InvalidRequest

_SECOND: Final = 1_000_000


class SimulatedRule:
    """One rule on an engine without threads. Its owner moves the clock, at most to `due`, and then calls `tick`."""

    def __init__(
        self,
        engine: Scheduler,
        clock: SimulatedClock,
        settings: AutomationSettings,
        listener: SituationListener,
        rule: Rule,
    ) -> None:
        """`engine`: opened with `start=False` and this clock. `rule`: applies also if it is switched off."""
        self._engine = engine
        self._clock = clock
        self._rule = replace(rule, enabled=True)
        self._actions = _TimedActions(engine, clock)
        self._events: deque[Callable[[], None]] = deque()
        self._rules = Rules(engine, self._actions, settings, clock, self._events.append, listener=listener)

    def start(self) -> None:
        """Apply the rule."""
        self._rules.follow([self._rule], {self._rule.name})
        self.work()

    def tally(self) -> RuleActivity:
        """Return what the rule has done. Raises `InvalidRequest` if its query cannot be followed."""
        state = self._rules.states()[self._rule.name]
        if state.stopped:
            raise InvalidRequest(state.stopped)
        return state.tally

    def due(self) -> int | None:
        """Return the time at which `tick` has something to do; None: nothing waits."""
        wait = self._rules.wait()
        # At least a microsecond later: with the same time, an owner that moves the clock step by step would never end.
        times = [
            *self._actions.due[:1],
            *([] if wait is None else [self._clock.at + max(1, int(wait * _SECOND))]),
        ]
        return min(times, default=None)

    def tick(self) -> None:
        """Do what is due at the time of the clock."""
        self._actions.forget(self._clock.at)
        self.work()
        self._rules.tick()
        self.work()

    def work(self) -> None:
        """Let the engine and the rule do everything that waits."""
        self._engine.drain()
        while self._events:
            self._events.popleft()()
            self._engine.drain()

    def close(self) -> None:
        """Forget what waits. The engine is closed by its owner."""
        self._events.clear()


class _TimedActions(EngineActions):
    """Notes when delayed updates are due, to move the clock there."""

    def __init__(self, engine: Scheduler, clock: SimulatedClock) -> None:
        super().__init__(engine, engine.turn)
        self._clock = clock
        self.due: list[int] = []
        """Times, as a heap. Those of cancelled updates are in it, too."""

    def schedule(self, request: UpdateRequest, delay: int, name: str) -> None:
        """Schedule an update, and note its time."""
        super().schedule(request, delay, name)
        heapq.heappush(self.due, self._clock.at + delay)

    def forget(self, until: int) -> None:
        """Drop the times up to this one."""
        while self.due and self.due[0] <= until:
            heapq.heappop(self.due)
