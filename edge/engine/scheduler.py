"""The scheduler: the only part of the engine that knows threads.

One writer thread takes requests from one FIFO queue: updates, subscribes, unsubscribes (SEPA paper, section 4.2). An
update is processed to its end, subscriptions included, before the next begins. Updates that waited share one commit;
nothing that they caused leaves before it. Queries run on threads of their own and wait for no update. Subscribed
queries that are evaluated anew have threads, too, if processing is parallel; the writer waits for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from edge.engine.changes import NO_CHANGE
from edge.engine.engine import Engine, Executed, PreparedUpdate
from edge.engine.evaluation import frameless
from edge.engine.explanation import Explanation
from edge.engine.journal import Entry, Journal
from edge.engine.performance import Figures
from edge.engine.query import collect
from edge.engine.requests import Answer, QueryRequest, QueryResult, Sink, Subscription, UpdateOutcome, UpdateRequest
from edge.engine.settings import Booster, EngineSettings, Processing
from edge.engine.workers import Workers
from edge.protocol.errors import EdgeError, NotReady, TooManyRequests

T = TypeVar("T")

Clock = Callable[[], int]
"""Microseconds since 1970, UTC."""

_LONG_TEXT = 32_768
"""Characters from which an update is compiled on a thread of its own, so that the caller's event loop goes on."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Updates:
    """Updates that were given at once."""

    requests: Sequence[UpdateRequest]
    prepared: Future[Sequence[PreparedUpdate]]
    """Long texts are compiled while they wait for their turn."""
    receipt: bytes
    future: Future[list[UpdateOutcome]]
    executed: list[Executed] = field(default_factory=list)


@dataclass(slots=True)
class _Task:
    """Something else for the writer thread."""

    run: Callable[[], None]
    future: Future[Any]


class Scheduler:
    """The engine's outside. Every method may be called from any thread and returns at once."""

    def __init__(self, engine: Engine, journal: Journal, settings: EngineSettings, clock: Clock) -> None:
        """Restores the engine from the journal and starts. Raises what `Journal.restore` raises."""
        self._engine = engine
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._queue: deque[_Updates | _Task] = deque()
        self._ready = threading.Condition()
        self._pending_updates = 0
        self._pending_queries = 0
        self._open = True
        self._busy_since: float | None = None
        self.storage_failing = ""
        """Why the last commit failed; empty: it did not."""
        self._flush_at = 0.0
        self._flush_failing = False
        engine.restore(journal.restore())
        self._receipts = tuple(journal.receipts())
        self._workers = Workers(settings.spu_workers, settings.processing)
        engine.spus.pool = self._workers
        self._readers = ThreadPoolExecutor(settings.query_workers, thread_name_prefix="query")
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        self._writer.start()

    # What clients can ask for

    def update(self, requests: Sequence[UpdateRequest], receipt: bytes = b"") -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction: all or none. Done when they are durable.

        `receipt` is stored in the same transaction and found again by `receipts`. The future raises `ParsingFailed`,
        `Forbidden`, `UpdateFailed`, `StorageFailed`, `TooManyRequests` (the queue is full) or `NotReady` (closing).
        """
        future: Future[list[UpdateOutcome]] = Future()
        future.set_running_or_notify_cancel()
        prepared: Future[Sequence[PreparedUpdate]] = Future()
        long = sum(map(len, {request.sparql for request in requests})) > _LONG_TEXT
        try:
            if long:
                self._compile(prepared, requests)
            else:
                prepared.set_result(self._prepare(requests))
            self._enqueue(_Updates(requests, prepared, receipt, future), updates=len(requests))
        except Exception as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            _fail(future, error)
        return future

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
        future: Future[T] = Future()

        def answer() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(self._engine.queries.run(request, read, self._clock()))

        self._on_reader(future, answer)
        return future

    def subscribe(self, query: QueryRequest, sink: Sink, alias: str | None = None) -> Future[Subscription]:
        """Subscribe. The sink gets sequence 0 before the future is done, and every notification from then on."""
        return self._on_writer(lambda: self._engine.subscribe(query, sink, alias, self._clock()))

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription. After the future is done its sink is called no more. The future raises `NotFound`."""
        return self._on_writer(lambda: self._engine.unsubscribe(spuid))

    def explain(self, query: QueryRequest) -> Future[Explanation]:
        """How a subscription to a query is, or would be, kept up to date; nothing is evaluated or subscribed."""
        return self._on_writer(lambda: self._engine.explain(query))

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
        return self._pending_updates

    @property
    def pending_queries(self) -> int:
        """Queries that wait or are being answered."""
        return self._pending_queries

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
        return self._open and self._writer.is_alive()

    @property
    def busy_seconds(self) -> float:
        """How long the writer has been at what it does now; 0 while it waits for something to do."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def close(self, timeout: float = 5.0) -> bool:
        """Take no more requests, carry out those that wait, close the journal. False: not closed in `timeout` seconds.

        What still waits after half of the time is refused (`NotReady`): nobody has been told that it was done.
        """
        with self._ready:
            self._open = False
            self._ready.notify()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._compiler.shutdown(wait=False)
        self._writer.join(timeout / 2)
        if self._writer.is_alive():
            with self._ready:
                left = list(self._queue)
                self._queue.clear()
            for item in left:
                item.future.set_exception(NotReady("The gateway stopped before the request's turn; send it again"))
            self._writer.join(timeout / 2)
        return not self._writer.is_alive()

    # On the caller's thread

    def _compile(self, prepared: Future[Sequence[PreparedUpdate]], requests: Sequence[UpdateRequest]) -> None:
        try:
            self._compiler.submit(lambda: _settle(prepared, lambda: self._prepare(requests)))
        except RuntimeError:  # shut down
            raise NotReady("The gateway is stopping; try again when it is back") from None

    def _prepare(self, requests: Sequence[UpdateRequest]) -> Sequence[PreparedUpdate]:
        return [self._engine.prepare(request) for request in requests]

    def _enqueue(self, item: _Updates | _Task, updates: int = 0) -> None:
        with self._ready:
            if not self._open:
                raise NotReady("The gateway is stopping; try again when it is back")
            # A list that is longer than the limit by itself waits for an empty queue, or it could never be carried out.
            if (
                updates
                and self._pending_updates
                and self._pending_updates + updates > self._settings.max_pending_updates
            ):
                raise TooManyRequests(
                    f"{self._pending_updates} updates are waiting (engine.max_pending_updates is "
                    f"{self._settings.max_pending_updates}); try again later"
                )
            self._pending_updates += updates
            self._queue.append(item)
            self._ready.notify()

    def _on_writer(self, action: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, action)

        try:
            self._enqueue(_Task(run, future))
        except EdgeError as error:
            future.set_exception(error)
        return future

    def _on_reader(self, future: Future[T], action: Callable[[], None]) -> None:
        def run() -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
                _fail(future, error)
            finally:
                with self._ready:
                    self._pending_queries -= 1

        def drop(task: Future[None]) -> None:
            if task.cancelled() and not future.cancelled():
                future.set_exception(NotReady("The gateway stopped before the request's turn; send it again"))

        with self._ready:
            if not self._open:
                future.set_exception(NotReady("The gateway is stopping; try again when it is back"))
                return
            limit = self._settings.max_pending_queries
            if self._pending_queries >= limit:
                future.set_exception(
                    TooManyRequests(f"{limit} queries are waiting (engine.max_pending_queries); try again later")
                )
                return
            self._pending_queries += 1
            self._readers.submit(run).add_done_callback(drop)

    # On the writer thread

    def _write(self) -> None:
        while True:
            work = self._next()
            if work is None:
                break
            self._busy_since = time.monotonic()
            if isinstance(work, _Task):
                work.run()
            elif work:
                self._run(work)
                with self._ready:
                    self._pending_updates -= sum(len(item.requests) for item in work)
            self._look_after_journal()
            self._busy_since = None
        self._workers.close()
        try:
            self._journal.close()
        except EdgeError as error:
            _log.error("journal.close_failed", extra={"reason": error.description})

    def _next(self) -> list[_Updates] | _Task | None:
        """What to do next: a task, or the updates that wait, as many as may share a commit. None: stop."""
        wait = self._settings.flush_interval if self._settings.durability == "interval" else None
        with self._ready:
            if not self._queue and self._open:
                self._ready.wait(wait)
            if not self._queue:
                return [] if self._open else None
            head = self._queue.popleft()
            if isinstance(head, _Task):
                return head
            batch = [head]
            size = len(head.requests)
            while self._queue:
                item = self._queue[0]
                if isinstance(item, _Task) or size + len(item.requests) > self._settings.max_batch:
                    break
                batch.append(item)
                size += len(item.requests)
                self._queue.popleft()
            return batch

    def _run(self, batch: Sequence[_Updates]) -> None:
        now = self._clock()
        engine = self._engine
        with engine.writing:
            done = [item for item in batch if self._execute(item, now)]
            entries = [entry for item in done for entry in _entries(item, now)]
            executed = [step for item in done for step in item.executed]
            try:
                if entries:
                    self._journal.commit(entries)
            except Exception as error:  # noqa: BLE001  whatever kept it from the disk, memory must not be ahead of it
                engine.undo(executed)
                self._note_storage(error)
                for item in done:
                    item.future.set_exception(error)
                return
            if entries and self.storage_failing:
                self.storage_failing = ""
                _log.info("journal.commit_recovered")
            engine.show(executed)
            for item in done:
                item.future.set_result([step.outcome for step in item.executed])
            engine.publish(executed)

    def _note_storage(self, error: Exception) -> None:
        """Log once that updates cannot be stored, not for each of them."""
        if not isinstance(error, EdgeError):
            _log.exception("journal.commit_fault")
        elif not self.storage_failing:
            _log.error("journal.commit_failed", extra={"reason": error.description})
        self.storage_failing = str(error)

    def _execute(self, item: _Updates, now: int) -> bool:
        try:
            item.executed = self._engine.execute(item.prepared.result(), now)
        except Exception as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
            _fail(item.future, error)
            return False
        return True

    def _look_after_journal(self) -> None:
        if self._settings.durability == "interval" and time.monotonic() >= self._flush_at:
            self._flush_at = time.monotonic() + self._settings.flush_interval
            self._flush()
        if self._journal.snapshot_due:
            self._journal.snapshot(self._engine.graph.quads(), self._engine.graph.named_graphs())

    def _flush(self) -> None:
        try:
            self._journal.flush()
        except EdgeError as error:
            if not self._flush_failing:
                _log.error("journal.flush_failed", extra={"reason": error.description})
            self._flush_failing = True
        else:
            if self._flush_failing:
                _log.info("journal.flush_recovered")
            self._flush_failing = False


def _entries(item: _Updates, now: int) -> list[Entry]:
    """What is to be stored of updates: their changes, and the receipt with the last of them."""
    changes = [step.changes for step in item.executed if step.changes]
    if not changes:
        return [Entry(now, NO_CHANGE, item.receipt)] if item.receipt else []
    receipts = [b""] * (len(changes) - 1) + [item.receipt]
    return [Entry(now, change, receipt) for change, receipt in zip(changes, receipts, strict=True)]


def _settle(future: Future[T], action: Callable[[], T]) -> None:
    try:
        future.set_result(action())
    except Exception as error:  # noqa: BLE001  a fault of ours must not stop the writer; the caller learns of it
        _fail(future, error)


def _fail(future: Future[Any], error: Exception) -> None:
    """Hand an error over to another thread."""
    if not isinstance(error, EdgeError):
        _log.exception("request.failed")
    future.set_exception(frameless(error))
