"""Engine time: what delays are measured in. It goes on evenly whatever is done to the machine's clock.

It is counted in microseconds and begins as Unix time. While the machine runs it is the steady clock's, over restarts of
the process, too. How long the machine was off only its own clock can tell, so that time counts if the clock was right
before and is right now. A clock without a battery is not: then nothing counts until the network has set it, and then
those delays that were given before are credited with it, once. So a delay never ends early, and at most as late as the
machine was off or as the delay is long, whichever is less.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Self

from edge.engine.clock import Clock

_JUMP: Final = 1_000_000
"""Microseconds that the machine's clock must move against the steady one for a new anchor."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on all clocks, in microseconds."""

    engine: int
    wall: int
    steady: int
    boot: str
    trusted: bool
    shown: int = 0
    """What the machine's clock showed at the last update before, which may have been before it was set or lost."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """How long the machine was off is not known yet."""

    before: Anchor
    """When the clock was right for the last time."""
    since: int
    """Engine time at the next start: what was given before that is owed the time."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Time that the machine was off, for the delays that were given before this engine time. In microseconds."""

    before: int
    time: int


@dataclass(frozen=True, slots=True)
class Anchors:
    """What must survive for engine time to go on after a restart."""

    last: Anchor
    unsettled: Unsettled | None = None
    credits: tuple[Credit, ...] = ()

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises `ValueError` where it is not what `to_json` wrote."""
        try:
            found = json.loads(text)
            unsettled = found["unsettled"]
            return cls(
                Anchor(**found["last"]),
                None if unsettled is None else Unsettled(Anchor(**unsettled["before"]), unsettled["since"]),
                tuple(Credit(**credit) for credit in found["credits"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no anchors of the engine's time: {error}") from error


class EngineTime:
    """Tells engine time, what delays are owed, and what must be stored of it."""

    def __init__(
        self,
        clock: Clock,
        stored: Anchors | None = None,
        known: int = 0,
        last_update: Callable[[], int] = lambda: 0,
    ) -> None:
        """`known`: an engine time that has been. `last_update`: what the machine's clock showed at the last update."""
        self._clock = clock
        self._last_update = last_update
        self._unsettled: Unsettled | None = None
        self._credits: tuple[Credit, ...] = () if stored is None else stored.credits
        engine = clock.wall() if stored is None else self._resumed(stored, known)
        self._anchor = self._anchored(engine)
        self.changed = True
        """Whether `anchors` is not what was stored last. To be cleared when it is."""
        self.look()

    @property
    def anchors(self) -> Anchors:
        """What must survive."""
        return Anchors(self._anchor, self._unsettled, self._credits)

    @property
    def credits(self) -> tuple[Credit, ...]:
        """All time that is owed; there is more of it when `look` has found some."""
        return self._credits

    def owed(self, since: int) -> int:
        """The time off that a delay which was given at this engine time has coming."""
        return sum(credit.time for credit in self._credits if since < credit.before)

    def forget(self, oldest: int) -> None:
        """No delay waits that was given before this engine time."""
        self._credits = tuple(credit for credit in self._credits if oldest < credit.before)

    def now(self) -> int:
        """Engine time."""
        return self._anchor.engine + self._clock.steady() - self._anchor.steady

    def look(self) -> None:
        """See whether the machine's clock was set. To be called now and then."""
        clock, anchor = self._clock, self._anchor
        if self._unsettled is not None:
            self._settle(self._unsettled)
        moved = clock.wall() - anchor.wall - (clock.steady() - anchor.steady)
        if abs(moved) > _JUMP or clock.trusted() != anchor.trusted:
            self._anchor = self._anchored(self.now())
            self.changed = True

    def _resumed(self, stored: Anchors, known: int) -> int:
        last, clock = stored.last, self._clock
        self._unsettled = stored.unsettled
        if last.boot == clock.boot:
            return last.engine + max(0, clock.steady() - last.steady)
        shown = self._last_update()
        ran = max(0, shown - last.wall) if shown != last.shown else 0
        engine = max(known, last.engine + ran) + 1
        if self._unsettled is None and last.trusted:
            self._unsettled = Unsettled(last, engine)
        return engine

    def _settle(self, unsettled: Unsettled) -> None:
        """Credit the time that the machine was off, if it can be told now."""
        before, wall = unsettled.before, self._clock.wall()
        if not self._clock.trusted() or wall < before.wall:
            return
        self._unsettled = None
        self.changed = True
        off = before.engine + wall - before.wall - self.now()
        if off > 0:
            self._credits = (*self._credits, Credit(unsettled.since, off))

    def _anchored(self, engine: int) -> Anchor:
        clock = self._clock
        return Anchor(engine, clock.wall(), clock.steady(), clock.boot, clock.trusted(), self._last_update())
