"""The scheduler: the engine's outside, and the threads behind it.

One writer thread takes requests from one queue: updates, subscribes, unsubscribes (SEPA paper, section 4.2).
Queries run on threads of their own and wait for no update. Subscribed queries that are evaluated anew have threads,
too, if processing is parallel; the writer waits for them. Delayed updates join the queue when their time has come.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from edge.engine.clock import Clock
from edge.engine.engine import Engine, PreparedUpdate
from edge.engine.explanation import Explanation
from edge.engine.journal import Journal
from edge.engine.kept import KeptSubscriptions, repeatable
from edge.engine.ledger import Ledger
from edge.engine.performance import Figures
from edge.engine.places import HOUSE
from edge.engine.query import collect
from edge.engine.readers import Readers
from edge.engine.replay import Replay, Restored
from edge.engine.request_queue import RequestQueue
from edge.engine.requests import (
    Answer,
    QueryRequest,
    QueryResult,
    Sink,
    Subscription,
    UpdateOutcome,
    UpdateRequest,
)
from edge.engine.settings import Booster, EngineSettings, Processing
from edge.engine.timer_table import TimerTable
from edge.engine.timers import Timers
from edge.engine.work import Cancel, Rights, Schedule, Task, Updates, fail, settle
from edge.engine.workers import Workers
from edge.engine.writer import Writer
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, NotReady
from edge.protocol.moments import When
from edge.protocol.timers import Scheduled, Timer, TimerState

T = TypeVar("T")

_LONG_TEXT = 32_768
"""Characters from which an update is compiled on a thread of its own, so that the caller's event loop goes on."""


class Scheduler:
    """The engine's outside. Every method may be called from any thread and returns at once."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        settings: EngineSettings,
        clock: Clock,
        rights: Rights = lambda given: given,
        ledger: Ledger | None = None,
    ) -> None:
        """Restores the engine from the journal and starts. Raises what `Journal.restore` and `Engine.write_down` raise.

        `rights` says what may be done by now who gave an update that runs later; it is called on the writer's thread.
        """
        self._engine = engine
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = KeptSubscriptions(journal, engine.rules, settings.max_kept)
        self._replay = Replay(engine, journal)
        for spuid in self._replay.run(self._kept.starts):
            self._kept.remove(spuid)
        if ledger is not None:
            engine.write_down(ledger)
        self._receipts = tuple(journal.receipts())
        self._timers = Timers(TimerTable(journal), clock, settings, lambda: journal.last_at)
        self._workers = Workers(settings.spu_workers, settings.processing)
        engine.spus.pool = self._workers
        self._readers = Readers(engine.queries, settings, clock)
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._queue = RequestQueue(settings.max_pending_updates, settings.max_batch)
        self._writer = Writer(engine, journal, self._timers, self._kept, self._queue, settings, clock, rights, ledger)
        self._writer.start()

    # What clients can ask for

    def update(self, requests: Sequence[UpdateRequest], receipt: bytes = b"") -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction: all or none. Done when they are durable.

        `receipt` is stored in the same transaction and found again by `receipts`. The future raises `ParsingFailed`,
        `Forbidden`, `UpdateFailed`, `StorageFailed`, `TooManyRequests` (the queue is full) or `NotReady` (closing).
        """
        prepared: Future[Sequence[PreparedUpdate]] = Future()
        work = Updates(self._engine, requests, prepared, receipt)
        long = sum(map(len, {request.sparql for request in requests})) > _LONG_TEXT
        try:
            if long:
                self._compile(prepared, requests)
            else:
                prepared.set_result(self._prepare(requests))
            self._queue.put(work)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            fail(work.future, error)
        return work.future

    def schedule(self, request: UpdateRequest, when: When, name: str | None = None) -> Future[Scheduled]:
        """Have an update run later, exactly once, also over restarts. Done when that is durable.

        `name` is its id among those of its client; a pending one with the same id is replaced. The future raises as
        that of `update` does: a wrong text is refused now, not when its time has come. What its client may do is asked
        then.
        """
        work = Schedule(self._timers, request, when, name or f"sepa://update/{uuid.uuid4()}")
        try:
            self._engine.prepare(request)
            self._queue.put(work)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            fail(work.future, error)
        return work.future

    def cancel(self, name: str, who: Access = ANYBODY, client: str | None = None) -> Future[None]:
        """Have a delayed update not run. The future raises `NotFound` if none with this id is pending.

        `client` names whose it is, where it is not that of `who`; else the future raises `Forbidden`.
        """
        work = Cancel(self._timers, name, who, client)
        try:
            self._queue.put(work)
        except EdgeError as error:
            fail(work.future, error)
        return work.future

    def timer(self, name: str, who: Access = ANYBODY, client: str | None = None) -> Future[Timer]:
        """A delayed update, or what became of it. The future raises `NotFound`, and `Forbidden` as with `cancel`."""
        return self._on_writer(lambda: self._timers.look_up(name, who, client), who.client, who)

    def timers(self, state: TimerState | None = None, limit: int = 100, who: Access = ANYBODY) -> Future[list[Timer]]:
        """Those of `who` that wait, the first one first, then what became of others, the last one first."""
        return self._on_writer(lambda: self._timers.listed(state, limit, who), who.client, who)

    def query(self, request: QueryRequest) -> Future[QueryResult]:
        """Answer a query over a committed state that is no older than the call.

        The future raises `ParsingFailed`, `Forbidden`, `EvaluationFailed`, `TooManyRequests` or `NotReady`. Cancelling
        it takes a query that has not begun out of the line.
        """
        return self.read(request, collect)

    def read(self, request: QueryRequest, read: Callable[[Answer], T]) -> Future[T]:
        """As `query`, with `read` taking in the answer on the query's own thread: to serialise it, for example.

        Oxigraph writes the results formats itself, four times as fast as from Python, and lets other threads run.
        """
        return self._readers.read(request, read)

    def subscribe(
        self, query: QueryRequest, sink: Sink, alias: str | None = None, *, keep: bool = False
    ) -> Future[Subscription]:
        """Subscribe. The sink gets sequence 0 before the future is done, and every notification from then on.

        `keep`: it goes on after a restart (`take_over`), where its query has one result for each state of the graph.
        """

        def begin() -> Subscription:
            subscription = self._engine.subscribe(query, sink, alias, self._clock.wall())
            if keep and repeatable(query.sparql, boosted=self._engine.spus.is_boosted(subscription.spuid)):
                self._kept.add(subscription.spuid, query)
            return subscription

        return self._on_writer(begin, query.source, query.access)

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription. After the future is done its sink is called no more. The future raises `NotFound`."""

        def end() -> None:
            self._kept.remove(spuid)
            self._engine.unsubscribe(spuid)

        return self._on_writer(end)

    def take_over(self, sink: Callable[[str], Sink]) -> Future[list[Restored]]:
        """The subscriptions of the process before that go on, each with a sink from now on. To be called once."""
        return self._on_writer(lambda: self._replay.take_over(sink))

    def explain(self, query: QueryRequest) -> Future[Explanation]:
        """How a subscription to a query is, or would be, kept up to date; nothing is evaluated or subscribed."""
        return self._on_writer(lambda: self._engine.explain(query))

    def on_writer(self, action: Callable[[], T]) -> Future[T]:
        """Do something between two commits, on the writer's thread."""
        return self._on_writer(action)

    def receipts(self) -> tuple[bytes, ...]:
        """The receipts of the updates that had been committed last when this process began, the oldest first."""
        return self._receipts

    # What operators can see and decide

    @property
    def processing(self) -> Processing:
        """Whether subscribed queries are evaluated anew one after another, or beside each other."""
        return self._workers.processing

    @processing.setter
    def processing(self, processing: Processing) -> None:
        """Any time, from any thread: evaluations that begin from now on go that way. No subscriber can tell."""
        self._workers.processing = processing

    @property
    def booster(self) -> Booster:
        """Whether subscribed queries are moved by the delta rules."""
        return self._settings.booster

    @property
    def spu_workers(self) -> int:
        """Threads that evaluate subscribed queries when processing is parallel."""
        return self._workers.threads

    @property
    def figures(self) -> Figures:
        """What the updates so far have cost, phase by phase."""
        return self._engine.performance.figures()

    @property
    def pending_updates(self) -> int:
        """Updates that wait or are being carried out."""
        return self._queue.pending_updates

    @property
    def pending_queries(self) -> int:
        """Queries that wait or are being answered."""
        return self._readers.pending

    @property
    def quads(self) -> int:
        """Quads of the live graph."""
        return len(self._engine.graph)

    @property
    def subscriptions(self) -> int:
        """Active subscriptions."""
        return self._engine.spus.subscriptions

    @property
    def spus(self) -> int:
        """SPUs that serve them."""
        return self._engine.spus.spus

    @property
    def sequence(self) -> int:
        """Number of the last update in the journal."""
        return self._journal.sequence

    @property
    def ready(self) -> bool:
        """Whether requests are taken and carried out."""
        return self._queue.open and self._writer.alive

    @property
    def pending_timers(self) -> int:
        """Delayed updates that wait."""
        return len(self._timers)

    @property
    def storage_failing(self) -> str:
        """Why the last commit failed; empty: it did not."""
        return self._writer.storage_failing

    @property
    def storing(self) -> bool:
        """Whether the writer waits for the disk."""
        return self._writer.storing

    @property
    def busy_seconds(self) -> float:
        """How long the writer has been at what it does now; 0 while it waits for something to do."""
        return self._writer.busy_seconds

    def close(self, timeout: float = 5.0) -> bool:
        """Take no more requests, carry out those that wait, close the journal. False: not closed in `timeout` seconds.

        What still waits after half of the time is refused (`NotReady`): nobody has been told that it was done.
        """
        self._queue.close()
        self._readers.close()
        self._compiler.shutdown(wait=False)
        self._writer.join(timeout / 2)
        if self._writer.alive:
            self._queue.refuse_rest()
            self._engine.apart.close()
            self._writer.join(timeout / 2)
        if self._writer.alive:
            return False
        self._workers.close()
        return True

    # On the caller's thread

    def _compile(self, prepared: Future[Sequence[PreparedUpdate]], requests: Sequence[UpdateRequest]) -> None:
        try:
            self._compiler.submit(lambda: settle(prepared, lambda: self._prepare(requests)))
        except RuntimeError:  # shut down
            raise NotReady("The gateway is stopping; try again when it is back") from None

    def _prepare(self, requests: Sequence[UpdateRequest]) -> Sequence[PreparedUpdate]:
        return [self._engine.prepare(request) for request in requests]

    def _on_writer(self, action: Callable[[], T], source: str = HOUSE, access: Access = ANYBODY) -> Future[T]:
        task = Task(action, source, access.priority)
        try:
            self._queue.put(task)
        except EdgeError as error:
            task.failed(error)
        return task.future
