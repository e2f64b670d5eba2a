"""Whether an adapter that writes to the engine gets on: the proof that the watchdog wants of it."""

from __future__ import annotations

from typing import Protocol

from edge.engine import Scheduler
from edge.gateway.watchdog import StandsStill


class Writing(Protocol):
    """An adapter with threads of its own."""

    @property
    def alive(self) -> bool:
        """Whether they work."""

    @property
    def queued(self) -> int:
        """What waits to be written."""

    @property
    def written(self) -> int:
        """What was carried out."""


class Progress:
    """Remembers how far the adapter was. While the disk or the engine takes nothing, it waits as it should."""

    def __init__(self, engine: Scheduler, things: str) -> None:
        """`things`: what it carries out."""
        self._engine = engine
        self._things = things
        self._written = -1

    def prove(self, adapter: Writing | None) -> None:
        """Raises `StandsStill`. None: there is no adapter yet, and nothing to prove."""
        if adapter is None:
            return
        if not adapter.alive:
            raise StandsStill("a thread of it has ended")
        before, self._written = self._written, adapter.written
        if adapter.queued and before == adapter.written and not self._engine.storage_failing:
            raise StandsStill(f"{adapter.queued} {self._things} wait and none is carried out")
