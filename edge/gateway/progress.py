"""Progress check for adapters that write to the engine, used by the watchdog."""

from __future__ import annotations

from typing import Protocol

from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.watchdog import Stalled


class Writing(Protocol):
    """An adapter with its own threads."""

    @property
    def alive(self) -> bool:
        """Whether its threads run."""

    @property
    def queued(self) -> int:
        """Number of items that wait to be written."""

    @property
    def written(self) -> int:
        """Number of items that were processed."""


class Progress:
    """Remembers the last count of the adapter. While the disk or the engine accepts nothing, waiting is correct."""

    def __init__(self, engine: Scheduler, things: str) -> None:
        """`things`: name of the items, for messages."""
        self._engine = engine
        self._things = things
        self._written = -1

    def prove(self, adapter: Writing | None) -> None:
        """Check for progress since the last call. Raises `Stalled`. None: the adapter is not created yet."""
        if adapter is None:
            return
        if not adapter.alive:
            raise Stalled("a thread of it has ended")
        before, self._written = self._written, adapter.written
        if adapter.queued and before == adapter.written and not self._engine.storage_failing:
            raise Stalled(f"{adapter.queued} {self._things} wait and none is carried out")
