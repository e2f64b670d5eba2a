"""Engine time: what delays are measured in. It goes on evenly whatever is done to the machine's clock.

It is counted in microseconds and begins as Unix time. While the machine runs it is the steady clock's, over restarts of
the process, too. How long the machine was off only its own clock can tell, so that time counts if the clock was right
before and is right now. A clock without a battery is not: then nothing counts until the network has set it, and then
all of it does, once. So a delay never ends early, and at most as late as the machine was off or as the delay is long,
whichever is less.
"""

from __future__ import annotations

import json
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


@dataclass(frozen=True, slots=True)
class Anchors:
    """What must survive for engine time to go on after a restart."""

    last: Anchor
    unsettled: Anchor | None = None
    """Of an earlier start of the machine: how long it was off since is not known yet."""

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises `ValueError` where it is not what `to_json` wrote."""
        try:
            found = json.loads(text)
            unsettled = found["unsettled"]
            return cls(Anchor(**found["last"]), None if unsettled is None else Anchor(**unsettled))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no anchors of the engine's time: {error}") from error


class TimeScale:
    """Tells engine time, and what must be stored of it."""

    def __init__(self, clock: Clock, stored: Anchors | None = None, known: int = 0, known_wall: int = 0) -> None:
        """`known`: an engine time that has been; `known_wall`: a time that the machine's clock has shown since."""
        self._clock = clock
        self._unsettled: Anchor | None = None
        engine = clock.wall() if stored is None else self._resumed(stored, known, known_wall)
        self._anchor = self._anchored(engine)
        self.changed = True
        """Whether `anchors` is not what was stored last. To be cleared when it is."""

    @property
    def anchors(self) -> Anchors:
        """What must survive."""
        return Anchors(self._anchor, self._unsettled)

    def now(self) -> int:
        """Engine time."""
        return self._anchor.engine + self._clock.steady() - self._anchor.steady

    def look(self) -> None:
        """See whether the machine's clock was set. To be called now and then."""
        clock, anchor = self._clock, self._anchor
        engine = self.now()
        if self._unsettled is not None:
            engine = max(engine, self._settled(self._unsettled, engine))
        moved = clock.wall() - anchor.wall - (clock.steady() - anchor.steady)
        if engine != self.now() or abs(moved) > _JUMP or clock.trusted() != anchor.trusted:
            self._anchor = self._anchored(engine)
            self.changed = True

    def _resumed(self, stored: Anchors, known: int, known_wall: int) -> int:
        last, clock = stored.last, self._clock
        self._unsettled = stored.unsettled
        if last.boot == clock.boot:
            return last.engine + max(0, clock.steady() - last.steady)
        engine = max(known, last.engine + max(0, known_wall - last.wall))
        if self._unsettled is None and last.trusted:
            self._unsettled = last
        return engine if self._unsettled is None else max(engine, self._settled(self._unsettled, engine))

    def _settled(self, before: Anchor, engine: int) -> int:
        """Engine time if the time that the machine was off can be told; else as given."""
        wall = self._clock.wall()
        if not self._clock.trusted() or wall < before.wall:
            return engine
        self._unsettled = None
        return before.engine + wall - before.wall

    def _anchored(self, engine: int) -> Anchor:
        clock = self._clock
        return Anchor(engine, clock.wall(), clock.steady(), clock.boot, clock.trusted())
