"""The scheduler: the engine's outside, and the threads behind it.

One writer thread takes requests from one queue: updates, subscribes, unsubscribes (SEPA paper, section 4.2).
Queries run on threads of their own and wait for no update. Subscribed queries that are re-evaluated have threads, too;
the writer does not wait for them. Delayed updates join the queue when their time has come.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.request_charges import RequestCharges
from edge.engine.admission.slots import GATEWAY
from edge.engine.admission.step_rate import StepRate
from edge.engine.clock import Clock
from edge.engine.engine import Engine, PreparedUpdate
from edge.engine.faults import contained
from edge.engine.journal.journal import Journal
from edge.engine.journal.ledger import Ledger
from edge.engine.performance import Figures
from edge.engine.queries.query_processor import collect
from edge.engine.requests import (
    Answer,
    QueryRequest,
    QueryResult,
    Sink,
    Subscription,
    UpdateOutcome,
    UpdateRequest,
)
from edge.engine.resume.durable_subscriptions import DurableSubscriptions, repeatable
from edge.engine.resume.recovery import Recovery, Restored
from edge.engine.scheduling.compile_queue import LONG_TEXT, CompileQueue
from edge.engine.scheduling.query_threads import QueryThreads
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Begin, Cancel, Rights, Schedule, Task, Updates, fail, settle
from edge.engine.scheduling.writer import Writer
from edge.engine.settings import Booster, EngineSettings, Processing
from edge.engine.subscriptions.evaluation_threads import EvaluationThreads
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.spu import Ready, Usage
from edge.engine.subscriptions.spu_manager import PreparedQuery
from edge.engine.timers.timer_table import TimerTable, check_storable
from edge.engine.timers.timers import Timers
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, NotReady, ReadOnly
from edge.protocol.moments import When
from edge.protocol.timers import Scheduled, Timer, TimerState

T = TypeVar("T")

_LONG_TEXT = 32_768
"""Characters from which an update is compiled on a thread of its own, so that the caller's event loop goes on."""

_DELIVERIES: Final = 8
"""Re-evaluated queries whose subscribers are notified before the writer looks at its queue again."""


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
        quota: ByteQuota | None = None,
        *,
        start: bool = True,
        read_only: str = "",
    ) -> None:
        """Restores the engine from the journal and starts. Raises what `Journal.restore` and `Engine.write_down` raise.

        `start=False`: no writer thread; the caller carries out what waits by `turn`, as a simulation does.
        `rights` says what may be done by now who gave an update that runs later; it is called on the writer's thread.
        `read_only`: why no updates are taken, and the remedy; empty: they are taken.
        `quota` is charged with what is held for clients; None: one with the usual limits.
        """
        self._charges = RequestCharges(quota or ByteQuota())
        self.read_only = read_only
        """Why no updates are taken, and the remedy; empty: they are taken."""
        self._engine = engine
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = DurableSubscriptions(journal, engine.rules, settings.max_kept)
        self._replay = Recovery(engine, journal)
        for spuid in self._replay.run(self._kept.starts):
            self._kept.remove(spuid)
        for spuid, last in self._replay.reevaluated.items():
            self._kept.reached(spuid, last)
        if ledger is not None:
            engine.write_down(ledger)
        engine.contributions.load(journal)
        self._timers = Timers(TimerTable(journal), clock, settings, lambda: journal.last_at)
        self._workers = EvaluationThreads(
            engine.spus.reevaluation, settings.spu_workers, settings.processing, start=start
        )
        engine.spus.reevaluation.request_delivery = self._request_delivery
        engine.spus.reevaluation.budget = settings.evaluation_budget
        engine.spus.caught_up = self._kept.reached
        engine.spus.demoted = self._kept.remove
        self._readers = QueryThreads(engine.queries, settings, clock)
        self._compiler = CompileQueue()
        self._queue = RequestQueue(
            settings.max_pending_updates, clock, StepRate(settings.client_steps, settings.max_steps)
        )
        compiler = self._compiler if start else None
        self._writer = Writer(
            engine, journal, self._timers, self._kept, self._queue, settings, clock, rights, ledger, compiler
        )
        if start:
            engine.spus.first_results.open(settings.update_workers, settings.evaluation_budget, self._submit)
            self._writer.start()

    # What clients can ask for

    def update(self, requests: Sequence[UpdateRequest], receipt: bytes = b"") -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction: all or none. Done when they are durable.

        `receipt` is stored in the same transaction and found again by `receipts`. The future raises `ParsingFailed`,
        `Forbidden`, `UpdateFailed`, `StorageFailed`, `TooManyRequests` (the queue is full) or `NotReady` (closing).
        """
        prepared: Future[Sequence[PreparedUpdate]] = Future()
        work = Updates(self._engine, requests, prepared, receipt)
        if error := self._charges.hold(work.future, work.source, requests):
            fail(work.future, error)
            return work.future
        long = _length(requests) > _LONG_TEXT
        try:
            self._check_writable()
            if long:
                self._compile(work, prepared, lambda: self._prepare(requests))
            else:
                updates = self._prepare(requests)
                if self._writer.alive and self._engine.must_fill(updates):
                    self._compile(work, prepared, lambda: updates)
                else:
                    prepared.set_result(updates)
            self._queue.put(work)
        except BaseException as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            fail(work.future, contained(error))
        return work.future

    def schedule(self, request: UpdateRequest, when: When, name: str | None = None) -> Future[Scheduled]:
        """Have an update run later, exactly once, also over restarts. Done when that is durable.

        `name` is its id among those of its client; a pending one with the same id is replaced. The future raises as
        that of `update` does: a wrong text is refused now, not when its time has come. What its client may do is asked
        then.
        """
        id_ = name or f"sepa://update/{uuid.uuid4()}"

        def check() -> Sequence[PreparedUpdate]:
            updates = self._prepare([request])
            check_storable(request, id_)
            return updates

        checked: Future[Sequence[PreparedUpdate]] = Future()
        work = Schedule(self._timers, request, when, id_, checked)
        if error := self._charges.hold(work.future, work.source, [request]):
            fail(work.future, error)
            return work.future
        try:
            self._check_writable()
            if len(request.sparql) > _LONG_TEXT:
                self._compile(work, checked, check)
            else:
                checked.set_result(check())
            self._queue.put(work)
        except BaseException as error:  # noqa: BLE001  whatever it is, the caller learns of it by the future
            fail(work.future, contained(error))
        return work.future

    def cancel(self, name: str, who: Access = ANYBODY, client: str | None = None) -> Future[None]:
        """Have a delayed update not run. The future raises `NotFound` if none with this id is pending.

        `client` names whose it is, where it is not that of `who`; else the future raises `Forbidden`.
        """
        work = Cancel(self._timers, name, who, client)
        try:
            self._check_writable()
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
        future: Future[T] = Future()
        if error := self._charges.hold(future, request.source, [request]):
            fail(future, error)
        else:
            self._readers.read(request, read, future)
        return future

    def subscribe(
        self, query: QueryRequest, sink: Sink, alias: str | None = None, *, keep: bool = False
    ) -> Future[Subscription]:
        """Subscribe. The sink gets sequence 0 before the future is done, and every notification from then on.

        `keep`: it goes on after a restart (`take_over`), where its query has one result for each state of the graph.
        Raises `TooManyRequests` where too much is held for the client.
        """
        charge = self._charges.subscription(query, alias, sink)

        def begin(ready: Ready, prepared: PreparedQuery) -> None:
            def begun(outcome: Subscription | Exception) -> None:
                if isinstance(outcome, Subscription):
                    charge.begun(outcome.spuid)
                    incremental = self._engine.spus.is_boosted(outcome.spuid)
                    if keep and repeatable(query.sparql, incremental=incremental):
                        self._kept.add(outcome.spuid, query, reevaluated=not incremental)
                ready(outcome)

            charge.begin()
            self._engine.begin(prepared, charge.sink, alias, query.source, self._clock.wall(), begun)

        return self._compiled(query, begin, charge.done)

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription. After the future is done its sink is called no more. The future raises `NotFound`."""

        def end() -> None:
            self._kept.remove(spuid)
            self._charges.forget(spuid)
            self._engine.unsubscribe(spuid)

        return self._on_writer(end)

    def transfer(self, spuid: str, client: str) -> Future[None]:
        """Have a subscription count for another client, which goes on with it. Nothing happens if it has ended."""

        def transfer() -> None:
            self._charges.transfer(spuid, client)
            self._engine.spus.transfer(spuid, client)

        return self._on_writer(transfer)

    def take_over(self, sink: Callable[[str], Sink]) -> Future[list[Restored]]:
        """The subscriptions of the process before that go on, each with a sink from now on. To be called once."""

        def charged(spuid: str, query: QueryRequest) -> Sink:
            return self._charges.restored(spuid, query, sink(spuid))

        return self._on_writer(lambda: self._replay.take_over(charged))

    def explain(self, query: QueryRequest) -> Future[Explanation]:
        """How a subscription to a query is, or would be, kept up to date; nothing is evaluated or subscribed."""

        def explain(ready: Callable[[Explanation], None], prepared: PreparedQuery) -> None:
            ready(self._engine.explain_prepared(prepared))

        return self._compiled(query, explain)

    def on_writer(self, action: Callable[[], T]) -> Future[T]:
        """Do something between two commits, on the writer's thread."""
        return self._on_writer(action)

    def receipts(self) -> Future[bytes]:
        """The receipts of the updates that were committed last, one after the other, the oldest first.

        Updates of the gateway itself that were given before are among them.
        """
        return self._on_writer(self._journal.receipts)

    def turn(self) -> None:
        """Carry out work that waits, up to one commit, on this thread. Only for a scheduler that was not started."""
        self._writer.turn(0.0)

    # What operators can see and decide

    @property
    def processing(self) -> Processing:
        """Whether subscribed queries are re-evaluated one at a time, or several."""
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
    def pending_evaluations(self) -> int:
        """Subscribed queries whose result is not yet that of the last commit: they wait or are being evaluated."""
        return self._engine.spus.pending

    @property
    def evaluations(self) -> Usage:
        """What the evaluations of all re-evaluated subscriptions have cost so far."""
        return self._engine.spus.reevaluation.total

    @property
    def subscriptions(self) -> int:
        """Active subscriptions."""
        return self._engine.spus.subscriptions

    @property
    def spus(self) -> int:
        """SPUs that serve them."""
        return self._engine.spus.spus

    @property
    def subscription_faults(self) -> int:
        """Subscriptions that ended by a fault of the gateway, since the start."""
        return self._engine.spus.faults

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
        """How long the writer has been at the piece of work that it does now; 0 while it waits for something to do."""
        return self._writer.busy_seconds

    @property
    def waiting_seconds(self) -> float:
        """How long the request that waits longest for the writer has waited; 0: none waits."""
        return self._queue.oldest_seconds

    @property
    def due_timers(self) -> int:
        """Delayed updates whose time has come and that have not run, as far as the writer has looked."""
        return self._timers.due

    def close(self, timeout: float = 5.0) -> bool:
        """Take no more requests, carry out those that wait, close the journal. False: not closed in `timeout` seconds.

        What still waits after half of the time is refused (`NotReady`): nobody has been told that it was done.
        """
        self._queue.close()
        self._readers.close()
        self._compiler.close()
        self._writer.join(timeout / 2)
        if self._writer.alive:
            self._queue.refuse_rest()
            self._engine.close()
            self._writer.join(timeout / 2)
        if self._writer.alive:
            return False
        self._engine.close()
        return self._workers.close(timeout / 2)

    # On evaluation threads

    def _request_delivery(self) -> None:
        """Have the writer notify the subscribers of what was evaluated. After `close` nobody is left to notify."""
        with contextlib.suppress(NotReady):
            self._queue.put(Task(self._deliver))

    def _deliver(self) -> None:
        self._engine.deliver(_DELIVERIES)

    def _submit(self, client: str, action: Callable[[], None]) -> None:
        """Have the writer do something as a task of a client. After `close` nobody waits for it."""
        with contextlib.suppress(NotReady):
            self._queue.put(Task(action, client))

    # On the caller's thread

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(self.read_only)

    def _compile(
        self,
        work: Updates | Schedule,
        prepared: Future[Sequence[PreparedUpdate]],
        prepare: Callable[[], Sequence[PreparedUpdate]],
    ) -> None:
        """Make updates ready on a thread of its own: the writer executes other updates meanwhile."""

        def compile_() -> Sequence[PreparedUpdate]:
            updates = prepare()
            if self._engine.must_fill(updates):
                self._engine.fill()
            return updates

        self._compiler.put(work.source, work.priority, lambda: settle(prepared, compile_), work.future)

    def _prepare(self, requests: Sequence[UpdateRequest]) -> Sequence[PreparedUpdate]:
        return [self._engine.prepare(request) for request in requests]

    def _on_writer(self, action: Callable[[], T], source: str = GATEWAY, access: Access = ANYBODY) -> Future[T]:
        return self._queued(Task(action, source, access.priority))

    def _compiled(
        self,
        query: QueryRequest,
        action: Callable[[Callable[[T | Exception], None], PreparedQuery], None],
        done: Callable[[Future[T]], None] | None = None,
    ) -> Future[T]:
        """Compile a query, and do something with it on the writer's thread. A long text is compiled on another thread.

        `action` gets a function that takes its outcome. `done` is called at the end.
        """

        def begin(ready: Callable[[T | Exception], None]) -> None:
            action(ready, self._engine.prepare_query(query) if compiled is None else compiled.result())

        compiled: Future[PreparedQuery] | None = Future() if len(query.sparql) > LONG_TEXT else None
        task: Begin[T] = Begin(begin, query.source, query.access.priority, compiled)
        if done is not None:
            task.future.add_done_callback(done)
        if compiled is not None:
            try:
                self._compiler.put(
                    query.source,
                    query.access.priority,
                    lambda: settle(compiled, lambda: self._engine.prepare_query(query), tell=False),
                    compiled,
                )
            except EdgeError as error:
                task.failed(error)
                return task.future
        return self._queued(task)

    def _queued(self, task: Task[T]) -> Future[T]:
        try:
            self._queue.put(task)
        except EdgeError as error:
            task.failed(error)
        return task.future


def _length(requests: Sequence[UpdateRequest]) -> int:
    """Characters of the texts of requests, equal ones counted once."""
    if len(requests) == 1:  # to hash a text of 6 MB takes milliseconds
        return len(requests[0].sparql)
    return sum(map(len, {request.sparql for request in requests}))
