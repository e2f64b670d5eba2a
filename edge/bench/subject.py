"""Subjects of the measurements: the engine with its journal, and a bare store as the baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyoxigraph as ox

from edge.bench.experiment import ExperimentError, ExperimentOptions
from edge.engine.clock import SystemClock
from edge.engine.journal.journal import Journal, JournalEntry
from edge.engine.performance import Figures, Statistics, clock
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.engine.store.changes import ChangeSet
from edge.garbage import cycle_collection
from edge.gates.outgoing import to_text

_CLOCK = SystemClock()
_CHUNK = 10_000
"""Quads in each change set of the initial load."""

_PATIENCE = 60.0
"""Time limit for expected notifications (s)."""


@dataclass(slots=True)
class Round:
    """Cost of one round of updates. Times in nanoseconds."""

    updates: int
    triples: int
    """Triples that the updates added."""
    notifications: int
    spent: int
    """T_TOTAL: from the texts of the updates to the texts of the notifications, including the commit."""
    inside: Figures
    """The phases that the engine's performance model measures."""
    each: Statistics = field(default_factory=Statistics)
    """T_TOTAL of each update; empty unless the updates ran one at a time."""

    @property
    def update(self) -> int:
        """T_UPDATE: the time outside the other phases, including the journal."""
        inside = self.inside
        return self.spent - inside.lutt.total - inside.booster.total - inside.notify.total


@dataclass(slots=True)
class Received:
    """The subscribers. They encode each notification as the text for a client and discard it."""

    count: int = 0

    def __call__(self, item: SubscriberNotification | SubscribeFailed) -> None:
        """Encode and count a notification. The first results (sequence 0) do not count."""
        if isinstance(item, SubscriberNotification) and to_text(item) and item.sequence:
            self.count += 1


class Subject:
    """The engine as the scheduler runs it. Made by `subject`."""

    def __init__(self, quads: Iterable[ox.Quad], settings: EngineSettings, directory: Path | None) -> None:
        self._settings = settings
        self.engine = make_engine(settings)
        self.engine.restore(_chunks(quads))
        self.journal = Journal.open(directory, durability="commit")
        self.received = Received()
        self._scheduler: Scheduler | None = None
        cycle_collection.begin()

    def subscribe(self, texts: Iterable[str]) -> list[str]:
        """Subscribe to each text. Returns the identifiers of the subscriptions."""
        subscribe, received = self.engine.subscribe, self.received
        return [subscribe(QueryRequest(text), received, None, _CLOCK.wall()).spuid for text in texts]

    def unsubscribe(self, spuids: Iterable[str]) -> None:
        """End subscriptions."""
        for spuid in spuids:
            self.engine.unsubscribe(spuid)

    def round(self, texts: Sequence[str]) -> Round:
        """Run updates one at a time, without threads, so that thread switches do not count."""
        return self._measured(texts, self._one_at_a_time)

    def pipelined_round(self, texts: Sequence[str], notifications: int) -> Round:
        """Submit all updates to the scheduler at once and wait for `notifications` notifications."""
        return self._measured(texts, lambda texts: self._scheduled(texts, notifications))

    def evaluated_round(self, texts: Sequence[str]) -> Round:
        """Run updates through the scheduler, each after the re-evaluations that the previous one caused."""
        return self._measured(texts, self._evaluated)

    def close(self) -> None:
        """Stop the threads and close the journal."""
        if self._scheduler is None:
            self.journal.close()
        else:
            self._scheduler.close(_PATIENCE)

    def check(self, notifications: int) -> None:
        """Raise `ExperimentError` if the last round sent another number of notifications.

        Figures of an engine with wrong results are meaningless.
        """
        if self.received.count != notifications:
            raise ExperimentError(f"{self.received.count} notifications where {notifications} are right")

    def _measured(self, texts: Sequence[str], run: Callable[[Sequence[str]], tuple[int, int, Statistics]]) -> Round:
        self.engine.performance.reset()
        self.received.count = 0
        spent, triples, each = run(texts)
        return Round(len(texts), triples, self.received.count, spent, self.engine.performance.figures(), each)

    def _one_at_a_time(self, texts: Sequence[str]) -> tuple[int, int, Statistics]:
        engine, journal = self.engine, self.journal
        spent, triples = [], 0
        for text in texts:
            began = clock()
            now = _CLOCK.wall()
            # The order of the writer thread: notifications are sent after the commit.
            executed = engine.execute([engine.prepare(UpdateRequest(text))], now)
            journal.commit([JournalEntry(now, step.changes, b"") for step in executed])
            engine.show(executed)
            engine.publish(executed)
            spent.append(clock() - began)
            triples += executed[0].outcome.added
        each = Statistics()
        each.add(spent)
        return each.total, triples, each

    def _started(self) -> Scheduler:
        if self._scheduler is None:
            self._scheduler = Scheduler(self.engine, self.journal, self._settings, _CLOCK)
        return self._scheduler

    def _evaluated(self, texts: Sequence[str]) -> tuple[int, int, Statistics]:
        scheduler, triples = self._started(), 0
        began = clock()
        for text in texts:
            triples += scheduler.update([UpdateRequest(text)]).result()[0].added
            # The future of an update completes before the writer marks the subscriptions to re-evaluate: wait for this.
            scheduler.on_writer(lambda: None).result()
            deadline = time.monotonic() + _PATIENCE
            while scheduler.pending_evaluations and time.monotonic() < deadline:
                time.sleep(0.0001)
        return clock() - began, triples, Statistics()

    def _scheduled(self, texts: Sequence[str], notifications: int) -> tuple[int, int, Statistics]:
        scheduler = self._started()
        began = clock()
        futures = [scheduler.update([UpdateRequest(text)]) for text in texts]
        triples = sum(future.result()[0].added for future in futures)
        deadline = time.monotonic() + _PATIENCE
        while self.received.count < notifications and time.monotonic() < deadline:
            time.sleep(0.0001)
        return clock() - began, triples, Statistics()


@contextmanager
def subject(
    quads: Iterable[ox.Quad], options: ExperimentOptions, booster: Literal["delta", "re-evaluate"] = "delta"
) -> Iterator[Subject]:
    """Create an engine with the quads, and close it at the exit."""
    settings = EngineSettings(processing=options.mode, booster=booster)
    with TemporaryDirectory(prefix="edge-bench-") as directory:
        made = Subject(quads, settings, Path(directory) if options.commit else None)
        try:
            yield made
        finally:
            made.close()


class BareStore:
    """A new in-memory Oxigraph store with the same triples, which measures T_ENDPOINT.

    Each round needs a new store: a store never frees overwritten data and becomes slower with each update.
    """

    def __init__(self, triples: bytes) -> None:
        """Load `triples`, an N-Triples text."""
        self._store = ox.Store()
        self._store.bulk_load(triples, ox.RdfFormat.N_TRIPLES)

    def round(self, texts: Sequence[str]) -> int:
        """Run updates and return their duration (ns)."""
        spent = 0
        for text in texts:
            began = clock()
            self._store.update(text)
            spent += clock() - began
        return spent


def n_triples(quads: Iterable[ox.Quad]) -> bytes:
    """Return quads of the default graph as N-Triples, the input of `BareStore`."""
    return "".join(f"{quad.triple} .\n" for quad in quads).encode()


def _chunks(quads: Iterable[ox.Quad]) -> Iterator[ChangeSet]:
    rest = iter(quads)
    while chunk := tuple(islice(rest, _CHUNK)):
        yield ChangeSet(added=chunk)
