"""A machine with a controllable clock, and an engine that can be stopped and started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_clock import SECOND, START, FakeClock

from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import Access
from edge.protocol.due_time import After, At, When
from edge.protocol.timers import TimerConfirmation, TimerRecord
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE, wait_for

WAIT = PATIENCE


class Box:
    """A machine with a controllable clock, and an engine that can be stopped and started."""

    def __init__(self, directory: Path | None, **settings: Any) -> None:
        self.directory = directory
        self.settings = unchecked(EngineSettings, **settings)
        self.clock = FakeClock()
        self.rights: Callable[[Access], Access] = lambda given: given
        self.engine: Scheduler = self._open()

    def _open(self) -> Scheduler:
        return open_engine(self.directory, self.settings, clock=self.clock, rights=lambda given: self.rights(given))

    def stop(self) -> None:
        assert self.engine.close()

    def start(self) -> None:
        self.engine = self._open()
        self.settle()

    def restart(self) -> None:
        self.stop()
        self.start()

    def settle(self) -> None:
        """Wait until all due timers have run or cannot run."""

        def settled() -> bool:
            for _ in range(3):  # the writer reads the clock between two of them
                self.engine.timers().result(WAIT)
            return not self.engine.due_timers

        wait_for(settled, "the due timers")

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def set(self, at: int, *, right: bool = True) -> None:
        self.clock.set(at, right=right)
        self.settle()

    def schedule(self, value: int, when: When, name: str | None = None) -> TimerConfirmation:
        return self.engine.schedule(UpdateRequest(insert(value)), when, name).result(WAIT)

    def update(self, text: str) -> None:
        self.engine.update([UpdateRequest(text)]).result(WAIT)

    def values(self) -> list[int]:
        found = self.engine.query(QueryRequest("SELECT ?o { ?s <a:p> ?o }")).result(WAIT)
        assert isinstance(found, Solutions)
        return sorted(int(row[0].value) for row in found.rows)  # type: ignore[union-attr]

    def timer(self, name: str) -> TimerRecord:
        return self.engine.timer(name).result(WAIT)

    def timers(self, **how: Any) -> list[str]:
        return [timer.id for timer in self.engine.timers(**how).result(WAIT)]


def insert(value: int) -> str:
    return f"INSERT DATA {{ <a:s> <a:p> {value} }}"


def after(seconds: float) -> After:
    return After(int(seconds * SECOND))


def at(seconds: float) -> At:
    return At(START + int(seconds * SECOND))
