"""Watchdog: checks all components for progress, and restarts those that make none."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from edge.backoff import Backoff
from edge.metrics import Metrics

_log = logging.getLogger(__name__)

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)

_SHUTDOWN_GRACE: Final = 1.0
"""Seconds for pending restarts to end when the gateway stops."""
MAKES_PROGRESS: Final = "moves"
"""State of a component that makes progress, as `/health` and the web page name it."""
_MAX_PAUSE: Final = 600.0
"""Upper bound of the pause between two restarts of the same component, in seconds."""


class Stalled(Exception):
    """A component makes no progress; the text gives the reason."""


@dataclass(slots=True)
class Component:
    """A component that can stop independently of the others."""

    name: str
    prove: Callable[[], Awaitable[None]]
    """Returns if the component makes progress; else raises, or does not return in time."""
    restart: Callable[[], Awaitable[None]] | None = None
    """Restarts the component; None: it cannot be restarted alone."""
    ends: bool = False
    """Whether a restart of the gateway would help if the component cannot be restarted."""
    reason: str = field(default="", init=False)
    """Why it seems to make no progress; empty if it does."""
    since: float = field(default=0.0, init=False)
    """Time of the first of the consecutive failed probes."""
    restarts: int = field(default=0, init=False)
    """Consecutive restarts without success."""
    again: float = field(default=0.0, init=False)
    """Earliest time of the next restart."""


class Watchdog:
    """Probes the components every `interval` seconds. All methods run on the event loop.

    A component whose probes have failed for `stall_after` seconds is restarted. If that does not help, it is
    restarted again, with a pause that doubles each time. A component that only a restart of the gateway can help, and
    that has made no progress for `end_after` seconds, sets `lost`: then the process has to be restarted.
    """

    def __init__(
        self,
        interval: float,
        stall_after: float,
        end_after: float,
        metrics: Metrics,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_progress` is called after each round until the gateway is lost, with a line about failed components."""
        self._interval = interval
        self._stall_after = stall_after
        # Without jitter: no other process restarts the same component.
        self._backoff = Backoff(stall_after, _MAX_PAUSE)
        self._end_after = end_after
        self._restarts = metrics.part_restarts
        self._on_progress = on_progress
        self._parts: list[Component] = []
        self._restarting: set[asyncio.Task[None]] = set()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason, when only a restart of the process can help."""

    def watch(self, *parts: Component) -> None:
        """Add components to watch."""
        self._parts += parts

    def states(self) -> dict[str, str]:
        """Return the state of each component: `MAKES_PROGRESS`, or why it seems to make no progress."""
        return {part.name: part.reason or MAKES_PROGRESS for part in self._parts}

    def still(self, now: float) -> list[str]:
        """Return the components that made no progress for too long, with the reason."""
        return [
            f"{part.name}: {part.reason}"
            for part in self._parts
            if part.reason and now - part.since >= self._stall_after
        ]

    async def run(self) -> None:
        """Probe forever. When cancelled, pending restarts get a limited time to finish."""
        try:
            await self._run()
        finally:
            if self._restarting:
                _, late = await asyncio.wait(self._restarting, timeout=_SHUTDOWN_GRACE)
                for restarting in late:
                    restarting.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Probe all components once. `now` is in seconds of a monotonic clock."""
        # Concurrently: a stalled component must not delay the probes of the others.
        await asyncio.gather(*(self._look_at(part, now) for part in self._parts))
        if not self.lost.done():
            self._on_progress("; ".join(f"{part.name}: {part.reason}" for part in self._parts if part.reason))

    async def _look_at(self, part: Component, now: float) -> None:
        reason = await self._proof(part)
        # Without a free descriptor a probe cannot connect. That proves nothing about the component.
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

    async def _proof(self, part: Component) -> str | None:
        """Return the reason of a failed probe; empty: it succeeded; None: the result is not known."""
        try:
            async with asyncio.timeout(self._interval):
                await part.prove()
        except TimeoutError:
            return f"no answer within {self._interval:g} s"
        except Exception as error:  # noqa: BLE001  any error is a failed probe
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                return None
            return str(error) or type(error).__name__
        return ""

    async def _restart(self, part: Component, restart: Callable[[], Awaitable[None]], now: float) -> None:
        _log.warning("part.stands_still", extra={"part": part.name, "reason": part.reason})
        # Set before the restart, so that a restart that fails or hangs backs off, too.
        part.again = now + self._backoff.longest(part.restarts)
        part.restarts += 1
        self._restarts.labels(part.name).inc()
        try:
            # A stop of the watchdog must not interrupt a restart half-way; `run` waits for it.
            await asyncio.shield(self._restarted(restart))
        except Exception as error:  # noqa: BLE001  the next round tries again
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
