"""An engine that is stopped or killed and opened again, and subscribers that record their notifications."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

from oracle import Query
from scheduler_harness import evaluated

from edge.engine.journal import sqlite_schema
from edge.engine.requests import Dataset, QueryRequest, Sink, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.resume.recovery import RestoredSubscription
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE, wait_for

WAIT = PATIENCE
"""Seconds after which a test gives up."""

Told = tuple[int, tuple[str, ...], Counter, Counter]
"""A notification: its sequence number, variables and rows in bag semantics."""


def received(notification: SubscriberNotification) -> Told:
    delta = notification.delta
    return notification.sequence, delta.variables, Counter(delta.added), Counter(delta.removed)


class Follower:
    """A subscriber and all its notifications."""

    def __init__(self, request: QueryRequest) -> None:
        self.request = request
        self.items: list[SubscriberNotification | SubscribeFailed] = []
        self.spuid = ""

    @property
    def received(self) -> list[Told]:
        return [received(item) for item in self.items if isinstance(item, SubscriberNotification)]

    @property
    def bag(self) -> Counter:
        bag: Counter = Counter()
        for number, (sequence, _, added, removed) in enumerate(self.received):
            assert sequence == number
            assert removed <= bag
            bag = bag - removed + added
        return bag


class KeptWorld:
    """A series of engines on one data directory. The directory of a killed engine is copied as it is on disk."""

    def __init__(self, directory: Path, max_durable: int = 1000, **settings: object) -> None:
        self.settings = unchecked(EngineSettings, **settings)
        self.max_durable = max_durable
        self._root = directory
        self._runs = 0
        self.directory = directory / "0"
        self.scheduler: Scheduler
        self.followers: dict[str, Follower] = {}
        """The followers whose subscriptions continue, by spuid."""
        self.restored: dict[str, RestoredSubscription] = {}
        self._open()

    def _open(self) -> None:
        self.scheduler = open_engine(self.directory, self.settings, max_durable=self.max_durable)

        def sink(spuid: str) -> Sink:
            return self.followers[spuid].items.append

        self.restored = {one.spuid: one for one in self.scheduler.take_over(sink).result(WAIT)}

    def update(self, text: str) -> None:
        try:
            self.scheduler.update([UpdateRequest(text)]).result(WAIT)
        finally:
            self.evaluate()

    def evaluate(self) -> None:
        """Wait until every re-evaluated subscription has the result of the last commit."""
        evaluated(self.scheduler)
        wait_for(lambda: not self.scheduler._durable.urgent)
        self.scheduler.on_writer(lambda: None).result(WAIT)

    def subscribe(self, query: Query | str, *, keep: bool = True) -> Follower:
        query = Query(query) if isinstance(query, str) else query
        follower = Follower(QueryRequest(query.text, Dataset(query.default_graphs, query.named_graphs)))
        future = self.scheduler.subscribe(follower.request, follower.items.append, keep=keep)
        follower.spuid = future.result(WAIT).spuid
        self.followers[follower.spuid] = follower
        return follower

    def unsubscribe(self, follower: Follower) -> None:
        del self.followers[follower.spuid]
        self.scheduler.unsubscribe(follower.spuid).result(WAIT)

    def current(self, request: QueryRequest) -> Counter:
        """Return the first result of a subscription."""
        items: list[SubscriberNotification | SubscribeFailed] = []
        spuid = self.scheduler.subscribe(request, items.append).result(WAIT).spuid
        self.scheduler.unsubscribe(spuid).result(WAIT)
        return received(items[0])[2]  # type: ignore[arg-type]

    def rows(self) -> int:
        """Return the number of subscriptions on disk."""
        with contextlib.closing(sqlite3.connect(self.directory / sqlite_schema.FILE_NAME)) as connection:
            return int(connection.execute("SELECT count(*) FROM subscriptions").fetchone()[0])

    def settle(self, rows: int) -> None:
        """Wait until there are this many subscriptions on disk."""
        wait_for(lambda: self.rows() == rows, f"{rows} subscriptions on disk")

    def stop(self) -> None:
        assert self.scheduler.close(WAIT)

    def restart(self, *, kill: bool = False) -> dict[str, RestoredSubscription]:
        """Restart after a stop, or as after `kill -9`. Return the restored subscriptions; all others have ended."""
        if kill:
            # all earlier notifications have been delivered
            self.scheduler.subscribe(QueryRequest("ASK {}"), lambda _: None).result(WAIT)
            self._runs += 1
            copy = self._root / str(self._runs)
            # On the thread that writes the files: in a copy made meanwhile, the log might belong to another state.
            self.scheduler.on_writer(lambda: shutil.copytree(self.directory, copy)).result(WAIT)
            self.stop()
            self.directory = copy
        else:
            self.stop()
        self._open()
        self.followers = {spuid: self.followers[spuid] for spuid in self.restored}
        return self.restored

    def check(self) -> None:
        """Check that restored notifications repeat earlier ones, and that each follower has the current result."""
        for spuid, one in self.restored.items():
            follower = self.followers.get(spuid)
            if follower is None:  # it unsubscribed since then
                continue
            sequences = [notification.sequence for notification in one.unread]
            assert sequences == list(range(one.last_sequence - len(sequences) + 1, one.last_sequence + 1))
            for notification in one.unread:
                assert received(notification) == follower.received[notification.sequence], follower.request
        for follower in self.followers.values():
            assert follower.bag == self.current(follower.request), follower.request
