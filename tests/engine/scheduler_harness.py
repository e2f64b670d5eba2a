"""A running engine whose writer a test can block, and a subscriber."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path

from fake_clock import FakeClock

from edge.engine.journal import sqlite_schema
from edge.engine.journal.journal import Journal
from edge.engine.requests import (
    QueryRequest,
    Solutions,
    SubscribeFailed,
    SubscriberNotification,
    UpdateOutcome,
    UpdateRequest,
)
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine, open_engine
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

WAIT = 100.0
"""Seconds after which a test gives up."""


class Harness:
    """A running engine with a barrier for its writer thread: while the barrier is closed, the writer is busy."""

    def __init__(self, directory: Path | None = None, journal: Journal | None = None, **settings: object) -> None:
        self.door = threading.Event()
        self.at_the_door = threading.Event()
        self.settings = unchecked(EngineSettings, **settings)  # type: ignore[arg-type]
        if journal is None:
            self.scheduler = open_engine(directory, self.settings)
        else:
            engine = make_engine(self.settings)
            self.scheduler = Scheduler(engine, journal, self.settings, FakeClock())

    def wait(self) -> None:
        """Wait at the barrier."""
        self.at_the_door.set()
        assert self.door.wait(WAIT)

    def busy(self) -> Future[None]:
        """Keep the writer busy until the barrier opens."""
        self.door.clear()
        self.at_the_door.clear()
        future = self.scheduler.on_writer(self.wait)
        assert self.at_the_door.wait(WAIT)
        return future

    def queue(self, *texts: str) -> Future[list[UpdateOutcome]]:
        return self.scheduler.update([UpdateRequest(text) for text in texts])

    def update(self, *texts: str) -> list[UpdateOutcome]:
        return self.queue(*texts).result(WAIT)

    def values(self) -> list[int]:
        result = self.scheduler.query(QueryRequest("SELECT ?o { ?s <a:p> ?o }")).result(WAIT)
        assert isinstance(result, Solutions)
        return sorted(int(row[0].value) for row in result.rows)  # type: ignore[union-attr]


def commits(directory: Path) -> int:
    """Return the number of commits in the journal of a directory."""
    with contextlib.closing(sqlite3.connect(directory / sqlite_schema.FILE_NAME)) as connection:
        return int(connection.execute("SELECT count(*) FROM commits").fetchone()[0])


def insert(value: int) -> str:
    return f"INSERT DATA {{ <a:s> <a:p> {value} }}"


class Client:
    def __init__(self, harness: Harness, text: str = "SELECT ?o { ?s <a:p> ?o }") -> None:
        self.items: list[SubscriberNotification | SubscribeFailed] = []
        self.future = harness.scheduler.subscribe(QueryRequest(text), self.items.append)

    def received(self) -> list[tuple[int, list[int], list[int]]]:
        """Return sequence, added values and removed values of each notification."""
        return [
            (
                n.sequence,
                sorted(int(r[0].value) for r in n.delta.added),
                sorted(int(r[0].value) for r in n.delta.removed),
            )
            for n in self.items
            if isinstance(n, SubscriberNotification)
        ]


def evaluated(scheduler: Scheduler) -> None:
    """Wait until the subscribers have been notified of every finished update."""
    scheduler.on_writer(lambda: None).result(WAIT)  # an update finishes before its subscribers are notified
    wait_for(lambda: scheduler.pending_evaluations == 0)
