"""Engine time: the clock of delays. It advances evenly, even if the machine's clock is changed.

It counts microseconds and starts as Unix time. While the machine runs, it follows the monotonic clock, also across
restarts of the process. Only the machine's own clock can tell how long the machine was off, so that time counts if the
clock was right before and is right now. A clock without a battery is wrong after a start. Then the time off counts only
after the network has set the clock, and is credited once to the delays that were scheduled before. So a delay never
ends early, and ends late by at most the time that the machine was off or the length of the delay, whichever is shorter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Self

from edge.engine.clock import Clock

_JUMP: Final = 1_000_000
"""Microseconds by which the machine's clock must deviate from the monotonic clock for a new anchor."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One point in time on all clocks, in microseconds."""

    engine: int
    wall: int
    steady: int
    boot: str
    trusted: bool
    shown: int = 0
    """Wall clock time of the previous update. It may lie before the clock was set or lost."""


@dataclass(frozen=True, slots=True)
class UnknownDowntime:
    """A time off whose length is not known yet."""

    before: Anchor
    """Last anchor at which the clock was right."""
    since: int
    """Engine time at the next start: delays that were scheduled before it are owed the time off."""


@dataclass(frozen=True, slots=True)
class DowntimeCredit:
    """Time that the machine was off, credited to the delays scheduled before the engine time `before`. Microseconds."""

    before: int
    time: int


@dataclass(frozen=True, slots=True)
class Anchors:
    """State that must survive a restart for engine time to continue."""

    last: Anchor
    unsettled: UnknownDowntime | None = None
    credits: tuple[DowntimeCredit, ...] = ()

    def to_json(self) -> str:
        """Return the anchors as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the anchors of a text from `to_json`. Raises `ValueError` for any other text."""
        try:
            found = json.loads(text)
            unsettled = found["unsettled"]
            return cls(
                Anchor(**found["last"]),
                None if unsettled is None else UnknownDowntime(Anchor(**unsettled["before"]), unsettled["since"]),
                tuple(DowntimeCredit(**credit) for credit in found["credits"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"the anchors of engine time are invalid: {error}") from error


class EngineTime:
    """Engine time, the credits of delays, and the anchors to be stored."""

    def __init__(
        self,
        clock: Clock,
        stored: Anchors | None = None,
        known: int = 0,
        last_update: Callable[[], int] = lambda: 0,
    ) -> None:
        """`known`: an engine time that has passed. `last_update`: returns the wall clock time of the last update."""
        self._clock = clock
        self._last_update = last_update
        self._unsettled: UnknownDowntime | None = None
        self._credits: tuple[DowntimeCredit, ...] = () if stored is None else stored.credits
        engine = clock.wall() if stored is None else self._resumed(stored, known)
        self._anchor = self._anchored(engine)
        self.changed = True
        """Whether `anchors` differs from the stored ones. The caller that stores them clears it."""
        self.look()

    @property
    def anchors(self) -> Anchors:
        """The state that must survive a restart."""
        return Anchors(self._anchor, self._unsettled, self._credits)

    @property
    def credits(self) -> tuple[DowntimeCredit, ...]:
        """All credits. `look` may add some."""
        return self._credits

    def downtime_credit(self, since: int) -> int:
        """Return the credit of a delay that was scheduled at this engine time."""
        return sum(credit.time for credit in self._credits if since < credit.before)

    def forget(self, oldest: int) -> None:
        """Drop the credits that no pending delay needs. `oldest`: engine time at which the oldest one was scheduled."""
        self._credits = tuple(credit for credit in self._credits if oldest < credit.before)

    def now(self) -> int:
        """Return the engine time in microseconds."""
        return self._anchor.engine + self._clock.steady() - self._anchor.steady

    def look(self) -> None:
        """Check whether the machine's clock was set. Must be called regularly."""
        clock, anchor = self._clock, self._anchor
        if self._unsettled is not None:
            self._settle(self._unsettled)
        # The wall clock drifts slowly against the monotonic one. Only a jump needs a new anchor.
        moved = clock.wall() - anchor.wall - (clock.steady() - anchor.steady)
        if abs(moved) > _JUMP or clock.trusted() != anchor.trusted:
            self._anchor = self._anchored(self.now())
            self.changed = True

    def _resumed(self, stored: Anchors, known: int) -> int:
        last, clock = stored.last, self._clock
        self._unsettled = stored.unsettled
        if last.boot == clock.boot:
            # The same boot: the monotonic clock ran on while the process did not.
            return last.engine + max(0, clock.steady() - last.steady)
        # Another boot: the monotonic clock started again. The time between the anchor and the last update certainly
        # passed. The rest is unknown until the wall clock can be trusted.
        shown = self._last_update()
        ran = max(0, shown - last.wall) if shown != last.shown else 0
        engine = max(known, last.engine + ran) + 1
        if self._unsettled is None and last.trusted:
            self._unsettled = UnknownDowntime(last, engine)
        return engine

    def _settle(self, unsettled: UnknownDowntime) -> None:
        """Credit the time that the machine was off, if it is known now."""
        before, wall = unsettled.before, self._clock.wall()
        # A wall clock before the last right time is wrong, whatever it says about itself.
        if not self._clock.trusted() or wall < before.wall:
            return
        self._unsettled = None
        self.changed = True
        # Engine time that should have passed, minus the engine time that has passed.
        off = before.engine + wall - before.wall - self.now()
        if off > 0:
            self._credits = (*self._credits, DowntimeCredit(unsettled.since, off))

    def _anchored(self, engine: int) -> Anchor:
        clock = self._clock
        return Anchor(engine, clock.wall(), clock.steady(), clock.boot, clock.trusted(), self._last_update())
