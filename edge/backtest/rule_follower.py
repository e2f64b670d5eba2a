"""Follower of a rule: its situations."""

from __future__ import annotations

from collections.abc import Sequence

from edge.automation.rule import Rule, Solution
from edge.automation.runner import SituationListener
from edge.automation.settings import AutomationSettings
from edge.automation.simulation import SimulatedRule
from edge.backtest.change import Change, Kind
from edge.engine.clock import SimulatedClock
from edge.engine.scheduling.scheduler import Scheduler
from edge.protocol.results import Term


class RuleFollower:
    """Follows a rule, with its delays and its updates. See `Follower`."""

    def __init__(self, engine: Scheduler, clock: SimulatedClock, rule: Rule) -> None:
        self._clock = clock
        self._rule = rule
        self._simulated = SimulatedRule(
            engine, clock, AutomationSettings(), SituationListener(self._began, self._ended), rule
        )
        self._changes: list[Change] = []
        self._numbers: dict[frozenset[tuple[str, Term]], int] = {}
        """Numbers of the situations that last."""
        self._last = 0
        self._failed = 0

    def start(self) -> Sequence[str]:
        """See `Follower`."""
        self._simulated.start()
        self._simulated.tally()
        return self._rule.variables

    def due(self) -> int | None:
        """Return the time of the next step that no value causes: a delayed update, or a silence."""
        return self._simulated.due()

    def tick(self) -> None:
        """See `Follower`."""
        self._simulated.tick()

    def take(self) -> list[Change]:
        """See `Follower`."""
        self._simulated.work()
        tally = self._simulated.tally()
        for _ in range(tally.failed - self._failed):
            self._note("failed", 0, {})
        self._failed = tally.failed
        changes, self._changes = self._changes, []
        return changes

    def close(self) -> None:
        """See `Follower`."""
        self._simulated.close()

    def _began(self, solution: Solution) -> None:
        self._last += 1
        self._numbers[frozenset(solution.items())] = self._last
        self._note("began", self._last, solution)

    def _ended(self, solution: Solution) -> None:
        number = self._numbers.pop(frozenset(solution.items()), None)
        if number is not None:
            self._note("ended", number, solution)

    def _note(self, kind: Kind, number: int, solution: Solution) -> None:
        self._changes.append(Change(self._clock.at, number, kind, tuple(map(solution.get, self._rule.variables))))
