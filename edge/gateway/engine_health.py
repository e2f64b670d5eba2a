"""Health of the engine: whether its writer and its journal make progress, and whether requests wait long."""

from __future__ import annotations

from collections.abc import Callable

from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.watchdog import Component, Stalled


class EngineHealth:
    """Problems of the engine as texts for operators. A text is empty without a problem."""

    def __init__(self, engine: Scheduler, stall_after: float, started: Callable[[], bool]) -> None:
        """`stall_after`: seconds without progress that are a problem. `started`: whether the gateway has started."""
        self._engine = engine
        self._limit = stall_after
        self._started = started
        self.parts = (
            Component("engine", self._prove_engine, ends=True),
            Component("journal", self._prove_journal),
        )
        """Components for the watchdog."""

    def engine_fault(self) -> str:
        """Return why updates are not carried out."""
        engine = self._engine
        if self._started() and not engine.ready:
            return "The thread that runs updates has ended; restart the gateway"
        if not engine.storing and engine.busy_seconds > self._limit:
            return (
                f"Updates have not moved on for {engine.busy_seconds:.0f} s (engine.stall_after is {self._limit:g} s): "
                "one update or subscription takes that long; wait for it, or restart the gateway"
            )
        return ""

    def journal_fault(self) -> str:
        """Return why updates cannot be stored."""
        engine = self._engine
        if engine.read_only:
            return engine.read_only
        if engine.storing and engine.busy_seconds > self._limit:
            return f"Updates wait: the disk has not answered for {engine.busy_seconds:.0f} s"
        return f"Updates are refused: {engine.storage_failing}" if engine.storage_failing else ""

    def busy(self) -> str:
        """Return why requests wait long although the engine makes progress."""
        engine = self._engine
        if engine.waiting_seconds <= self._limit:
            return ""
        return (
            f"busy: requests have waited for up to {engine.waiting_seconds:.0f} s (engine.stall_after is "
            f"{self._limit:g} s), {engine.pending_updates} updates and {engine.due_timers} delayed updates are to be "
            "carried out; send fewer, or cheaper ones (`edge engine` shows what they cost)"
        )

    async def _prove_engine(self) -> None:
        if fault := self.engine_fault():
            raise Stalled(fault)

    async def _prove_journal(self) -> None:
        if fault := self.journal_fault():
            raise Stalled(fault)
