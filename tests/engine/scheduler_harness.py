"""A running engine whose writer can be kept busy, and a subscriber to it."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path

from fake_clock import FakeClock

from edge.engine.journal import sqlite_schema
from edge.engine.journal.journal import Journal
from edge.engine.requests import Notification, QueryRequest, Solutions, SubscribeFailed, UpdateOutcome, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine, open_engine
from tests.support.waiting import wait_for

WAIT = 100.0
"""Seconds after which something that should happen has not happened."""


class House:
    """A running engine, with a door that the writer can be made to wait at: while it is shut the writer is busy."""

    def __init__(self, directory: Path | None = None, journal: Journal | None = None, **settings: object) -> None:
        self.door = threading.Event()
        self.at_the_door = threading.Event()
        self.settings = EngineSettings(**settings)  # type: ignore[arg-type]
        if journal is None:
            self.scheduler = open_engine(directory, self.settings)
        else:
            engine = make_engine(self.settings)
            self.scheduler = Scheduler(engine, journal, self.settings, FakeClock())

    def wait(self) -> None:
        """Wait at the door."""
        self.at_the_door.set()
        assert self.door.wait(WAIT)

    def busy(self) -> Future[None]:
        """Keep the writer busy until the door is opened."""
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
    """How many commits the journal in a directory has."""
    with contextlib.closing(sqlite3.connect(directory / sqlite_schema.FILE_NAME)) as connection:
        return int(connection.execute("SELECT count(*) FROM commits").fetchone()[0])


def insert(value: int) -> str:
    return f"INSERT DATA {{ <a:s> <a:p> {value} }}"


class Client:
    def __init__(self, house: House, text: str = "SELECT ?o { ?s <a:p> ?o }") -> None:
        self.items: list[Notification | SubscribeFailed] = []
        self.future = house.scheduler.subscribe(QueryRequest(text), self.items.append)

    def told(self) -> list[tuple[int, list[int], list[int]]]:
        """Sequence, values added, values removed of every notification."""
        return [
            (
                n.sequence,
                sorted(int(r[0].value) for r in n.delta.added),
                sorted(int(r[0].value) for r in n.delta.removed),
            )
            for n in self.items
            if isinstance(n, Notification)
        ]


def evaluated(scheduler: Scheduler) -> None:
    """Wait until the subscribers have been notified of every update that is done."""
    scheduler.on_writer(lambda: None).result(WAIT)  # an update is done before its subscribers are notified
    wait_for(lambda: scheduler.pending_evaluations == 0)
