"""The watchdog of progress: every part proves, again and again, that it moves; one that stands still is restarted."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from edge.metrics import Metrics

_log = logging.getLogger(__name__)

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)

_LAST: Final = 1.0
"""Seconds that a restart gets to end when the gateway stops."""
MOVES: Final = "moves"
"""The state of a part that does."""
_LONGEST: Final = 600.0
"""Seconds between two restarts of a part that they do not help."""


class StandsStill(Exception):
    """A part does not move; the text says why one thinks so."""


@dataclass(slots=True)
class Part:
    """Something that can stand still while the rest goes on."""

    name: str
    prove: Callable[[], Awaitable[None]]
    """Returns where it moves; raises, or does not return in time, where not."""
    restart: Callable[[], Awaitable[None]] | None = None
    """None: it cannot be restarted alone."""
    ends: bool = False
    """Whether a new start of the gateway would help, where a restart of the part cannot."""
    reason: str = field(default="", init=False)
    """Why it seems to stand still; empty: it moves."""
    since: float = field(default=0.0, init=False)
    """When the first proof failed, of those that failed in a row."""
    restarts: int = field(default=0, init=False)
    """In a row, none of which has helped so far."""
    again: float = field(default=0.0, init=False)
    """Before that it is not restarted again."""


class Watchdog:
    """Looks at the parts every `interval` seconds. All methods are called on the event loop.

    A part whose proofs have failed for `stall_after` seconds is restarted; if that does not help it is again, each
    time after twice as long. One that only a new start of the gateway helps, and that has stood still for `end_after`
    seconds, makes the gateway `lost`: whoever runs it has to start it anew.
    """

    def __init__(
        self,
        interval: float,
        stall_after: float,
        end_after: float,
        metrics: Metrics,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_progress` is called after each round, as long as the gateway is not lost, with a line on how it is."""
        self._interval = interval
        self._stall_after = stall_after
        self._end_after = end_after
        self._restarts = metrics.part_restarts
        self._on_progress = on_progress
        self._parts: list[Part] = []
        self._restarting: set[asyncio.Task[None]] = set()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when the gateway cannot mend itself."""

    def watch(self, *parts: Part) -> None:
        """Look after these, too."""
        self._parts += parts

    def states(self) -> dict[str, str]:
        """Part to `MOVES`, or why it seems to stand still."""
        return {part.name: part.reason or MOVES for part in self._parts}

    def still(self, now: float) -> list[str]:
        """The parts that have stood still for too long, each with the reason."""
        return [
            f"{part.name}: {part.reason}"
            for part in self._parts
            if part.reason and now - part.since >= self._stall_after
        ]

    async def run(self) -> None:
        """Look, for ever. What is being restarted when this is cancelled gets the time it needs, within bounds."""
        try:
            await self._run()
        finally:
            if self._restarting:
                _, late = await asyncio.wait(self._restarting, timeout=_LAST)
                for restarting in late:
                    restarting.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """One round at `now`, in seconds of a clock that only goes on."""
        await asyncio.gather(*(self._look_at(part, now) for part in self._parts))
        if not self.lost.done():
            self._on_progress("; ".join(f"{part.name}: {part.reason}" for part in self._parts if part.reason))

    async def _look_at(self, part: Part, now: float) -> None:
        reason = await self._proof(part)
        if reason is None:
            part.reason, part.since = "not known: the process is out of file descriptors", now
            return
        if not reason:
            if part.restarts or (part.reason and now - part.since >= self._stall_after):
                _log.info("part.moves", extra={"part": part.name, "seconds": round(now - part.since, 1)})
            part.reason, part.restarts, part.again = "", 0, 0.0
            return
        if not part.reason:
            part.since = now
        part.reason = reason
        still = now - part.since
        if part.restart is None:
            if part.ends and self._end_after and still >= self._end_after and not self.lost.done():
                self.lost.set_result(f"{part.name} has not moved for {still:.0f} s: {reason}")
        elif still >= self._stall_after and now >= part.again:
            await self._restart(part, part.restart, now)

    async def _proof(self, part: Part) -> str | None:
        """Why there is none; empty: there is one; None: nobody can tell."""
        try:
            async with asyncio.timeout(self._interval):
                await part.prove()
        except TimeoutError:
            return f"no answer within {self._interval:g} s"
        except Exception as error:  # noqa: BLE001  whatever it is, it is no proof
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                return None
            return str(error) or type(error).__name__
        return ""

    async def _restart(self, part: Part, restart: Callable[[], Awaitable[None]], now: float) -> None:
        _log.warning("part.stands_still", extra={"part": part.name, "reason": part.reason})
        part.again = now + min(self._stall_after * 2**part.restarts, _LONGEST)
        part.restarts += 1
        self._restarts.labels(part.name).inc()
        try:
            await asyncio.shield(self._restarted(restart))
        except Exception as error:  # noqa: BLE001  it is tried again
            _log.error("part.restart_failed", extra={"part": part.name, "reason": str(error) or type(error).__name__})
        else:
            _log.info("part.restarted", extra={"part": part.name})

    def _restarted(self, restart: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def bounded() -> None:
            async with asyncio.timeout(self._stall_after):
                await restart()

        task = asyncio.create_task(bounded())
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)
        return task
