"""The core of a gateway in one thread: engine, journal, timers and subscribers on a simulated disk and clock.

A seed decides everything that happens: requests of clients, steps of the writer, full or failing disks, kills and power
cuts. The same seed gives the same story. After each restart, and at the end, the world checks the guarantees of a
gateway:

- A confirmed update is present, complete and in the order of its client; a refused one is not.

- A confirmed delayed update runs exactly once and never before its time; a cancelled one never runs.

- The notifications of a subscriber add up to the result of its query, also over restarts if the subscription is
durable.

- Every update stores one observation for the history, numbered without gaps, whose number never changes.

- Every reading that a broker delivers is stored once and in order; acknowledged ones are present.

- Clients over unreliable connections, and devices over a network that loses datagrams: see `simulated_clients` and
`simulated_devices`. The broker of the readings: see `simulated_broker`.

- Every request is answered.

- Nothing leaks: no work in queues, no unused term in the dictionary.
"""

from __future__ import annotations

import functools
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from large_changes import PROPERTY, LargeChanges
from simulated_clients import Clients, LateSink
from simulated_clients import rows as rows_of
from simulated_disk import DISK
from simulated_readings import SERIES, Readings

from edge.engine.journal import sqlite_schema
from edge.engine.journal.journal import Journal
from edge.engine.requests import Delta, QueryRequest, SubscribeFailed, SubscriberNotification, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.outbox import sqlite_tables
from edge.outbox.observation import Cells, ObservationContext
from edge.outbox.recorder import Recorder
from edge.outbox.settings import OutboxSettings
from edge.protocol.due_time import After, At, When
from edge.protocol.errors import NotFound, StorageFailed
from tests.support.settings import unchecked

SECOND = 1_000_000
CLIENTS = ("anna", "ben", "carla")
NUMBERS = ("urn:value", "urn:log", "urn:count", "urn:done", "urn:sum", PROPERTY)
"""Properties whose values are checked."""
Numbers = dict[str, list[int]]
"""Numbers by subject."""
QUERIES = (
    "SELECT ?c ?n { ?c <urn:value> ?n }",
    "SELECT ?c (COUNT(?n) AS ?k) (MAX(?n) AS ?m) { ?c <urn:log> ?n } GROUP BY ?c",
    "SELECT ?t ?n { ?t <urn:count> ?n }",
    "SELECT ?c ?n ?m { ?c <urn:value> ?n OPTIONAL { ?c <urn:log> ?m FILTER(?m = ?n) } }",
    "SELECT DISTINCT ?n { ?c <urn:value> ?n }",
    "ASK { ?c <urn:value> 3 }",
    "CONSTRUCT { ?c <urn:last> ?n } { ?c <urn:value> ?n }",
    "SELECT ?b (COUNT(*) AS ?k) { ?b <urn:part> ?n } GROUP BY ?b",
)


@dataclass
class Clock:
    """The clocks of a machine, in microseconds.

    Each read of the monotonic clock takes a microsecond, like real work.
    """

    at: int = 1_700_000_000 * SECOND
    up: int = 100 * SECOND
    boots: int = 0

    @property
    def boot(self) -> str:
        return f"boot-{self.boots}"

    def wall(self) -> int:
        return self.at

    def steady(self) -> int:
        self.up += 1
        return self.up

    def trusted(self) -> bool:
        return True

    def advance(self, microseconds: int) -> None:
        self.at += microseconds
        self.up += microseconds


@dataclass
class Client:
    """A client and its updates: each writes its number to a log and to one value."""

    name: str
    sent: int = 0
    waiting: dict[int, Future[Any]] = field(default_factory=dict)
    """Updates without an answer. After a restart they may be present or not."""
    confirmed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    @property
    def subject(self) -> str:
        return f"urn:client:{self.name}"

    def text(self, number: int) -> str:
        subject = f"<{self.subject}>"
        return (
            f"DELETE {{ {subject} <urn:value> ?old }} INSERT {{ {subject} <urn:value> {number} ; <urn:log> {number} }} "
            f"WHERE {{ OPTIONAL {{ {subject} <urn:value> ?old }} }}"
        )


@dataclass
class DelayedUpdate:
    """A delayed update that counts its runs."""

    number: int
    when: When
    future: Future[Any]
    cancelling: Future[Any] | None = None
    confirmed: bool = False
    refused: bool = False
    cancelled: bool = False
    doubtful: bool = False
    """Whether the process ended while a request to schedule or cancel it was unanswered."""

    @property
    def name(self) -> str:
        return f"timer-{self.number}"

    @property
    def text(self) -> str:
        subject = f"<urn:timer:{self.number}>"
        return (
            f"DELETE {{ {subject} <urn:count> ?n }} INSERT {{ {subject} <urn:count> ?m }} "
            f"WHERE {{ OPTIONAL {{ {subject} <urn:count> ?n }} BIND(COALESCE(?n, 0) + 1 AS ?m) }}"
        )


class Subscriber:
    """A subscription, and its notifications from the current process."""

    def __init__(self, query: str, *, durable: bool) -> None:
        self.query = query
        self.durable = durable
        self.stored = False
        """Whether a restart restores it."""
        self.spuid = ""
        self.sequence = -1
        self.bag: Counter[tuple[object, ...]] = Counter()
        self.future: Future[Any]

    def __call__(self, item: SubscriberNotification | SubscribeFailed) -> None:
        if not DISK.stopped:  # a process that has ended sends nothing
            self.take(item)

    def take(self, item: SubscriberNotification | SubscribeFailed) -> None:
        assert isinstance(item, SubscriberNotification), f"the subscription ended: {item}"
        assert item.sequence == self.sequence + 1, "a notification is missing or came twice"
        self.sequence = item.sequence
        removed = Counter(item.delta.removed)
        assert removed <= self.bag
        self.bag = self.bag - removed + Counter(item.delta.added)


class World:
    """The story of one seed."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        random.seed(seed)  # libraries use that one
        self.clock = Clock()
        self.directory = directory
        self.settings = unchecked(
            EngineSettings,
            snapshot_min_bytes=self.chance.choice((600, 3000, 100_000)),
            max_batch=self.chance.choice((1, 3, 256)),
        )
        self.clients = [Client(name) for name in CLIENTS]
        self.timers: list[DelayedUpdate] = []
        self.subscribers: list[Subscriber] = []
        self.sent_to_history: dict[int, tuple[str, int]] = {}
        """Client and update by the number of the observation."""
        self.story: list[str] = []
        """The events, for the analysis of a failed seed."""
        self.restarts = 0
        # A story with fewer kinds of events is cheaper, and tests each of them more.
        self.reads, self.serves = (self.chance.random() < 0.5 for _ in range(2))
        self.readings = Readings(self.chance, self.clock, self.story)
        self.large = LargeChanges(random.Random(seed))
        self.connected = Clients(self.chance, self.clock, self.story)
        self.scheduler: Scheduler
        (directory / sqlite_schema.FILE_NAME).write_bytes(_new_file())
        self._open()

    def run(self, steps: int) -> None:
        """Run up to this number of events, then finish all work and check it."""
        actions: tuple[tuple[Callable[[], None], int], ...] = (
            (self._update, 30),
            (self._turn, 30),
            (self._acknowledge_history, 2),
            (self._schedule, 6),
            (self._cancel, 3),
            (self._subscribe, 4),
            (self._unsubscribe, 1),
            (self._pass_time, 8),
            (self._set_clock, 1),
            (self._spoil_disk, 2),
            (self._heal_disk, 12),
            (self._end_soon, 3),
            (self._change_much, 9),
        )
        chosen = self.chance.choices(
            [action for action, _ in actions], [weight for _, weight in actions], k=self.chance.randint(1, steps)
        )
        for action in chosen:
            self.story.append(action.__name__.strip("_"))
            action()
            if self.reads:
                self.readings.go_on()
            if self.serves:
                self.connected.go_on()
            if DISK.stopped:
                self._restart()
        self._rest()
        self._restart()
        self._rest()
        self.connected.leave(self._turn)

    # Events

    def _update(self) -> None:
        client = self.chance.choice(self.clients)
        client.sent += 1
        number = client.sent
        note = ObservationContext(series=client.subject), Cells(self.clock.at, str(number))
        request = UpdateRequest(client.text(number), source=client.name, notes=(note,))
        client.waiting[number] = self.scheduler.update([request])

    def _change_much(self) -> None:
        self.large.send(self.scheduler)

    def _turn(self) -> None:
        self.scheduler.turn()
        self._listen()

    def _acknowledge_history(self) -> None:
        """The history acknowledges some observations, and the outbox deletes them."""
        last = self.outbox.safe
        if last > self.outbox.head.acknowledged:
            last = self.chance.randint(self.outbox.head.acknowledged + 1, last)
            self._note_sent()
            self.scheduler.on_writer(lambda: self.outbox.forget(last))

    def _schedule(self) -> None:
        number = len(self.timers)
        length = self.chance.choice((0, SECOND, 60 * SECOND, 3600 * SECOND))
        when = After(length) if self.chance.random() < 0.5 else At(self.clock.at + length)
        timer = DelayedUpdate(number, when, Future())
        timer.future = self.scheduler.schedule(
            UpdateRequest(timer.text, source=self.chance.choice(CLIENTS)), when, timer.name
        )
        self.timers.append(timer)

    def _cancel(self) -> None:
        waiting = [timer for timer in self.timers if timer.cancelling is None]
        if waiting:
            timer = self.chance.choice(waiting)
            timer.cancelling = self.scheduler.cancel(timer.name)

    def _subscribe(self) -> None:
        if len(self.subscribers) < 12:
            subscriber = Subscriber(self.chance.choice(QUERIES), durable=self.chance.random() < 0.7)
            request = QueryRequest(subscriber.query, source=self.chance.choice(CLIENTS))
            subscriber.future = self.scheduler.subscribe(request, subscriber, keep=subscriber.durable)
            self.subscribers.append(subscriber)

    def _unsubscribe(self) -> None:
        begun = [subscriber for subscriber in self.subscribers if subscriber.spuid]
        if begun:
            subscriber = self.chance.choice(begun)
            self.subscribers.remove(subscriber)
            self.scheduler.unsubscribe(subscriber.spuid)

    def _pass_time(self) -> None:
        self.clock.advance(self.chance.choice((1000, SECOND, 61 * SECOND, 3700 * SECOND)))

    def _set_clock(self) -> None:
        self.clock.at += self.chance.choice((-1, 1)) * self.chance.choice((SECOND, 3600 * SECOND))

    def _spoil_disk(self) -> None:
        fault = self.chance.choice(("full", "failing_syncs"))
        setattr(DISK, fault, True)
        self.story[-1] += f" {fault}"

    def _heal_disk(self) -> None:
        DISK.full = DISK.failing_syncs = False

    def _end_soon(self) -> None:
        if DISK.stops_at is None:
            DISK.stops_at = DISK.operations + self.chance.randrange(0, 40)
            DISK.last_operation_counts = self.chance.random() < 0.5

    # Answers to clients

    def _listen(self) -> None:
        """Process the answers, unless the process ended before it could send them."""
        if DISK.stopped:
            return
        for client in self.clients:
            for number, future in list(client.waiting.items()):
                if future.done():
                    del client.waiting[number]
                    if future.exception() is None:
                        client.confirmed.add(number)
                    elif self._refused(future):
                        client.refused.add(number)
        self.large.listen(self._refused)
        for timer in self.timers:
            if timer.future.done() and not (timer.confirmed or timer.refused or timer.doubtful):
                timer.confirmed = timer.future.exception() is None
                timer.refused = not timer.confirmed and self._refused(timer.future)
                timer.doubtful = not (timer.confirmed or timer.refused)
            if timer.cancelling is not None and timer.cancelling.done():
                error = timer.cancelling.exception()
                timer.cancelled = timer.cancelled or error is None
                timer.doubtful = timer.doubtful or not (error is None or isinstance(error, NotFound))
        for subscriber in self.subscribers:
            if not subscriber.spuid and subscriber.future.done():
                subscriber.spuid = subscriber.future.result().spuid
            if subscriber.spuid and subscriber.durable and not self.scheduler._durable.changed:
                subscriber.stored = True

    def _refused(self, future: Future[Any]) -> bool:
        """Return whether an error means that nothing was done.

        While syncs fail, the medium may have it all the same.
        """
        assert isinstance(future.exception(), StorageFailed), future.exception()
        return not self.scheduler._journal._log_unclean

    # End of the process, and restart

    def _restart(self) -> None:
        """End the process in its current state without a shutdown, and start another."""
        self.restarts += 1
        DISK.stops_at = DISK.operations if DISK.stops_at is None else DISK.stops_at
        self.readings.end()
        self.connected.end()
        self._discard()
        power_cut = self.chance.random() < 0.6
        self.story.append("power cut" if power_cut else "kill")
        DISK.restart(self.chance, power_cut=power_cut)
        if power_cut:
            self.clock.boots += 1
            self.clock.up = 5 * SECOND
        self.clock.at += self.chance.choice((0, SECOND, 100 * SECOND))
        self.large.forget()
        for client in self.clients:
            client.waiting.clear()
        for timer in self.timers:
            unanswered = not (timer.confirmed or timer.refused) or (
                timer.cancelling is not None and not timer.cancelling.done()
            )
            timer.doubtful = timer.doubtful or unanswered
        self._open()

    def _discard(self) -> None:
        scheduler = self.scheduler
        scheduler._queue.close()
        scheduler._readers.close()
        scheduler._compile_queue.close(wait=True)
        scheduler._workers.close()
        scheduler._engine.close()
        scheduler._journal._connection.close()
        lock, scheduler._journal._lock = scheduler._journal._lock, None
        if lock is not None:
            lock.release()

    def _open(self) -> None:
        self.connected.begin()
        self.scheduler = open_engine(
            self.directory,
            self.settings,
            clock=self.clock,
            ledger=self._open_outbox,
            quota=self.connected.quota,
            start=False,
            max_durable=50,
        )
        sinks = {subscriber.spuid: subscriber for subscriber in self.subscribers if subscriber.spuid}
        others: dict[str, LateSink] = {}
        future = self.scheduler.take_over(lambda spuid: sinks.get(spuid) or others.setdefault(spuid, LateSink()))
        self.scheduler.turn()
        while not future.done():
            self.scheduler.turn()
        of_clients = [one for one in future.result() if one.request.sparql.startswith(" ")]
        self.connected.serve(self.scheduler, of_clients, others, lambda: not self.scheduler._journal._log_unclean)
        restored = {one.spuid: one for one in future.result() if one not in of_clients}
        for spuid in restored.keys() - sinks.keys():  # its client was not notified of the start, or ended it
            self.scheduler.unsubscribe(spuid)
        for subscriber in list(self.subscribers):
            self._resume(subscriber, restored.get(subscriber.spuid))
        found = self._numbers()
        self._check_updates(found)
        self.large.check(found[PROPERTY], at_rest=False)
        self._check_readings(at_rest=False)
        if self.reads:
            self.readings.begin(self.scheduler)

    def _open_outbox(self, journal: Journal) -> Recorder:
        self.outbox = Recorder(journal, OutboxSettings(gateway="simulated"))
        return self.outbox

    def _resume(self, subscriber: Subscriber, restored: Any) -> None:
        if restored is None:
            assert not subscriber.stored, "a durable subscription is gone"
            self.subscribers.remove(subscriber)
            return
        subscriber.stored = True
        assert subscriber.sequence <= restored.last_sequence, (
            "a subscriber was sent what the next process does not know"
        )
        for item in restored.unread:
            if item.sequence > subscriber.sequence:
                subscriber.take(item)

    def close(self) -> None:
        """Close the files."""
        DISK.stops_at = DISK.operations
        self.readings.end()
        self.connected.end()
        self._discard()

    # Invariants

    def _rest(self) -> None:
        """Stop the faults, finish all waiting work, and run all delayed updates."""
        DISK.heal()
        # A clock that was set back several times reaches the last due time much later.
        due = max((timer.when.microseconds for timer in self.timers if isinstance(timer.when, At)), default=0)
        self.clock.advance(max(3 * 3600 * SECOND, due - self.clock.at))
        if self.reads:
            self.readings.rest(self._turn)
        while self.scheduler.pending_updates or self.scheduler._queue.oldest_seconds:
            self._turn()
        for _ in range(3 + self.scheduler.pending_timers):
            self.clock.advance(20 * SECOND)
            self._turn()
        assert self.scheduler.pending_timers == 0
        assert self.scheduler.storage_failing == ""
        for client in self.clients:
            assert not client.waiting, "an update was not answered"
        if self.serves:
            self.connected.rest(self._turn)
        assert all(timer.future.done() for timer in self.timers if not timer.doubtful)
        found = self._numbers()
        self._check_updates(found)
        self.large.check(found[PROPERTY], at_rest=True)
        self._check_timers(found["urn:count"])
        self._check_subscribers()
        self._check_history(found["urn:log"])
        self._check_readings(at_rest=self.reads)

    def _check_readings(self, *, at_rest: bool) -> None:
        self._note_sent()
        sent = [self.sent_to_history[seq] for seq in sorted(self.sent_to_history)]
        self.readings.check([number for subject, number in sent if subject.startswith(SERIES)], at_rest=at_rest)

    def _check_updates(self, found: Mapping[str, Numbers]) -> None:
        logs, values = found["urn:log"], found["urn:value"]
        self.connected.check_updates(found["urn:done"], found["urn:sum"])
        for client in self.clients:
            there = set(logs.get(client.subject, ()))
            assert client.confirmed <= there, f"confirmed updates are gone: {client.confirmed - there}"
            assert not client.refused & there, f"refused updates are there: {client.refused & there}"
            assert values.get(client.subject, []) == ([max(there)] if there else []), "updates are half there"

    def _check_timers(self, counts: Numbers) -> None:
        for timer in self.timers:
            times = counts.get(f"urn:timer:{timer.number}", [0])
            expected = [0, 1] if timer.doubtful else [int(timer.confirmed and not timer.cancelled)]
            assert len(times) == 1, f"{timer} is half there"
            assert times[0] in expected, f"{timer} ran {times[0]} times"

    def _numbers(self) -> dict[str, Numbers]:
        """Return the numbers in the live graph, by property and subject."""
        found: dict[str, Numbers] = {property_: {} for property_ in NUMBERS}
        for subject, property_, number, _ in self.scheduler._engine.graph.quads():
            if property_.value in found:
                found[property_.value].setdefault(subject.value, []).append(int(number.value))
        return found

    def _check_history(self, logs: Numbers) -> None:
        self._note_sent()
        numbers = sorted(self.sent_to_history)
        assert numbers == list(range(1, len(numbers) + 1)), "observations are missing"
        for client in self.clients:
            stored = [number for subject, number in map(self.sent_to_history.get, numbers) if subject == client.subject]
            assert stored == sorted(logs.get(client.subject, [])), "an update and its observation are not one"

    def _note_sent(self) -> None:
        """Send the observations that the outbox may send. Observations must not change after they were sent."""
        journal = self.scheduler._journal
        contexts = dict(sqlite_tables.read_contexts(journal.select))
        for seq, context, body in sqlite_tables.read_rows(journal.select, self.outbox.oldest, self.outbox.safe):
            found = str(contexts[context].series), int(body.split("\t")[1])
            assert self.sent_to_history.setdefault(seq, found) == found, f"observation {seq} has changed"

    def _check_subscribers(self) -> None:
        for subscriber in self.subscribers:
            bag = Counter(self._result(subscriber.query).added)
            assert subscriber.bag == bag, f"{subscriber.query} is {subscriber.bag}"
        self.connected.check_subscriptions(lambda query: rows_of(json.loads(self._result(query).json[0])))

    def _result(self, query: str) -> Delta:
        """Return the first result of a new subscription to a query."""
        items: list[Any] = []
        self.scheduler._engine.unsubscribe(
            self.scheduler._engine.subscribe(QueryRequest(query), items.append, None, self.clock.at).spuid
        )
        delta: Delta = items[0].delta
        return delta


@functools.cache
def _new_file() -> bytes:
    """Return a new journal, made once per process."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        Journal.open(directory).close()
        return (directory / sqlite_schema.FILE_NAME).read_bytes()
