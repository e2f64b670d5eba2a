"""The scheduler: the public interface of the engine, and its threads.

One writer thread takes updates, subscribes and unsubscribes from one queue (SEPA paper, section 4.2). Queries run on
their own threads and do not wait for updates. Re-evaluated subscriptions also have their own threads, and the writer
does not wait for them. Delayed updates join the queue when they are due.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.admission.limit_usage import LimitUsage
from edge.engine.admission.request_charges import RequestCharges
from edge.engine.admission.token_bucket import TokenBuckets
from edge.engine.clock import Clock
from edge.engine.engine import Engine
from edge.engine.faults import contained
from edge.engine.journal.journal import Journal
from edge.engine.journal.ledger import Ledger
from edge.engine.performance import Figures
from edge.engine.queries.query_processor import collect
from edge.engine.requests import (
    ActiveSubscription,
    Answer,
    GraphWatch,
    QueryRequest,
    QueryResult,
    Sink,
    UpdateOutcome,
    UpdateRequest,
)
from edge.engine.resume.durable_subscriptions import DurableSubscriptions, repeatable
from edge.engine.resume.recovery import Recovery, RestoredSubscription
from edge.engine.scheduling.compile_queue import CompileQueue
from edge.engine.scheduling.query_threads import QueryThreads
from edge.engine.scheduling.request_compiler import RequestCompiler
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Cancel, Rights, Schedule, Task, Updates, Write, fail
from edge.engine.scheduling.writer import Writer
from edge.engine.settings import Booster, EngineSettings, Processing
from edge.engine.store.changes import ChangeSet
from edge.engine.store.graph import LiveGraph
from edge.engine.subscriptions.evaluation_threads import EvaluationThreads
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.pending_subscriber import Ready
from edge.engine.subscriptions.reevaluated_spu import Usage
from edge.engine.subscriptions.spu_manager import PreparedQuery
from edge.engine.subscriptions.spu_report import Cost, SpuReports, report
from edge.engine.timers.timer_table import TimerTable, check_storable
from edge.engine.timers.timers import Timers
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.protocol.access import ANYBODY, Access
from edge.protocol.due_time import When
from edge.protocol.errors import EdgeError, NotReady, ReadOnly
from edge.protocol.timers import TimerConfirmation, TimerRecord, TimerState

T = TypeVar("T")

_DELIVERIES: Final = 8
"""Re-evaluated queries whose subscribers are notified before the writer checks its queue again."""


class Scheduler:
    """The public interface of the engine. Every method is thread-safe and returns at once."""

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
        max_durable: int = 0,
    ) -> None:
        """Restore the engine from the journal and start.

        Raises the errors of `Journal.restore` and `Engine.write_down`.

        `start=False`: no writer thread; the caller runs the work by `turn`, as a simulation does. `rights`: returns the
        current permissions of the client of a delayed update; called on the writer thread. `read_only`: reason why
        updates are refused, and the remedy; empty: updates are accepted. `quota`: charged for data held for clients;
        None: one with default limits. `max_durable`: most subscriptions that survive a restart.
        """
        self._quota = quota = quota or ByteQuota()
        self._charges = RequestCharges(quota)
        self.read_only = read_only
        """Reason why updates are refused, and the remedy; empty: updates are accepted."""
        self._engine = engine
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._durable = DurableSubscriptions(journal, engine.rules, max_durable)
        self._recovery = Recovery(engine, journal)
        self._recover()
        if ledger is not None:
            engine.write_down(ledger)
        engine.contributions.load(journal)
        self._timers = Timers(TimerTable(journal), clock, settings, lambda: journal.last_at)
        self._workers = EvaluationThreads(
            engine.spus.reevaluation, settings.spu_workers, settings.processing, start=start
        )
        self._follow_evaluations()
        self._readers = QueryThreads(engine.queries, settings, clock)
        self._compile_queue = CompileQueue()
        self._compiler = RequestCompiler(engine, self._compile_queue, lambda: self._writer.alive)
        self._queue = RequestQueue(
            settings.max_pending_updates, clock, TokenBuckets(settings.client_steps, settings.max_steps)
        )
        compile_queue = self._compile_queue if start else None
        self._writer = Writer(
            engine, journal, self._timers, self._durable, self._queue, settings, clock, rights, ledger, compile_queue
        )
        if start:
            engine.spus.incremental.first_results.open(
                settings.update_workers, settings.evaluation_budget, self._submit
            )
            self._writer.start()

    def _recover(self) -> None:
        # Subscriptions that cannot be restored are deleted from the disk.
        for spuid in self._recovery.run(self._durable.starts):
            self._durable.remove(spuid)
        for spuid, last in self._recovery.reevaluated.items():
            self._durable.reached(spuid, last)

    def _follow_evaluations(self) -> None:
        spus = self._engine.spus
        spus.reevaluation.request_delivery = self._request_delivery
        spus.reevaluation.limit(self._settings.evaluation_budget)
        spus.reevaluated.caught_up = self._durable.reached
        spus.replacement.replaced = self._durable.remove

    # Requests of clients

    def update(self, requests: Sequence[UpdateRequest]) -> Future[list[UpdateOutcome]]:
        """Run updates in order, in one transaction: all or none. The future is done when they are durable.

        The future raises `ParsingFailed`, `Forbidden`, `UpdateFailed`, `StorageFailed`, `TooManyRequests` (the queue is
        full) or `NotReady` (closing).
        """
        work = Updates(self._engine, requests)
        if error := self._charges.hold(work.future, work.source, requests):
            fail(work.future, error)
            return work.future
        try:
            self._check_writable()
            self._compiler.compile_updates(work, requests)
            self._queue.put(work)
        except BaseException as error:  # noqa: BLE001  the future passes any error to the caller
            fail(work.future, contained(error))
        return work.future

    def watch(self, graph: str, who: Access = ANYBODY, source: str = "") -> Future[GraphWatch]:
        """Begin to watch a graph (an IRI, or empty for the default graph), for a `Precondition` of `update`.

        A query of `read` that begins later reads the state of the graph at the start of the watch, or a later one.
        """
        return self._on_writer(lambda: self._engine.preconditions.watch(graph), source, who)

    def write(
        self, requests: Sequence[UpdateRequest], receipt: bytes, done: Callable[[Exception | None], None]
    ) -> None:
        """Queue updates of the gateway itself, as one transaction. The caller calls `carry_out` next.

        `receipt` is stored in the same transaction and returned by `receipts`.

        Nearly every reading comes this way, so it has no future and no separate thread. `done` is called after the
        commit, or with the error, on the thread that carried the updates out; it must not block. Raises the errors of
        `update` for requests that do not enter the queue.
        """
        self._check_writable()
        self._queue.put(Write(self._engine, self._compiler.prepare(requests), receipt, done), wake=False)

    def carry_out(self, *, wait: bool = False) -> None:
        """Carry out waiting work on this thread if the writer is idle. For threads that may block.

        `wait`: if it is busy, wait for the end of its turn first.
        """
        self._writer.carry_out(wait=wait)

    def schedule(self, request: UpdateRequest, when: When, name: str | None = None) -> Future[TimerConfirmation]:
        """Run an update later, exactly once, also across restarts. The future is done when the schedule is durable.

        `name` is its id, unique for its client; it replaces a pending one with the same id. The future raises the
        errors of `update`: the text is checked now. The permissions of the client are checked when the update runs.
        """
        id_ = name or f"sepa://update/{uuid.uuid4()}"

        def check() -> Sequence[PreparedUpdate]:
            updates = self._compiler.prepare([request])
            check_storable(request, id_)
            return updates

        checked: Future[Sequence[PreparedUpdate]] = Future()
        work = Schedule(self._timers, request, when, id_, checked)
        if error := self._charges.hold(work.future, work.source, [request]):
            fail(work.future, error)
            return work.future
        try:
            self._check_writable()
            self._compiler.compile_scheduled(work, request, checked, check)
            self._queue.put(work)
        except BaseException as error:  # noqa: BLE001  the future passes any error to the caller
            fail(work.future, contained(error))
        return work.future

    def cancel(self, name: str, who: Access = ANYBODY, client: str | None = None) -> Future[None]:
        """Cancel a delayed update. The future raises `NotFound` if none with this id is pending.

        `client`: owner of the update, if not that of `who`. Then the future raises `Forbidden` unless `who` may
        administer.
        """
        work = Cancel(self._timers, name, who, client)
        try:
            self._check_writable()
            self._queue.put(work)
        except EdgeError as error:
            fail(work.future, error)
        return work.future

    def timer(self, name: str, who: Access = ANYBODY, client: str | None = None) -> Future[TimerRecord]:
        """Return a delayed update or its outcome. The future raises `NotFound`, and `Forbidden` as with `cancel`."""
        return self._on_writer(lambda: self._timers.look_up(name, who, client), who.client, who)

    def timers(
        self, state: TimerState | None = None, limit: int = 100, who: Access = ANYBODY
    ) -> Future[list[TimerRecord]]:
        """Return the pending updates of `who`, next first, then the outcomes of finished ones, newest first."""
        return self._on_writer(lambda: self._timers.listed(state, limit, who), who.client, who)

    def pending_ids(self, prefix: str) -> Future[list[str]]:
        """Return the ids of the gateway's own pending updates that begin with `prefix`."""
        return self._on_writer(lambda: self._timers.pending_ids(prefix))

    def check(self, request: UpdateRequest) -> None:
        """Compile an update without running it. Raises `ParsingFailed`, `Forbidden`, `UpdateFailed`."""
        self._engine.prepare(request)

    def try_out(self, action: Callable[[LiveGraph], T], seconds: float) -> T:
        """Run a function on the graph in a forked process, and wait for its result. `seconds`: time limit.

        The function may change the graph: the changes are gone with the process. It must use nothing else of the
        gateway that has threads or open files. Raises the errors of the function, and those of `Child.result`.
        """
        return self._engine.try_out(action, seconds).result()

    def query(self, request: QueryRequest) -> Future[QueryResult]:
        """Answer a query on a committed state that is at least as recent as the call.

        The future raises `ParsingFailed`, `Forbidden`, `EvaluationFailed`, `TooManyRequests` or `NotReady`. Cancelling
        it removes a query that has not begun from the queue.
        """
        return self.read(request, collect)

    def read(self, request: QueryRequest, read: Callable[[Answer], T]) -> Future[T]:
        """Answer a query as `query` does, and process the answer on the query's thread, for example to serialise it.

        Oxigraph writes the results formats itself: four times as fast as Python code, and without the GIL.
        """
        future: Future[T] = Future()
        if error := self._charges.hold(future, request.source, [request]):
            fail(future, error)
        else:
            self._readers.read(request, read, future)
        return future

    def subscribe(
        self, query: QueryRequest, sink: Sink, alias: str | None = None, *, keep: bool = False, awaited: bool = False
    ) -> Future[ActiveSubscription]:
        """Subscribe. The sink gets sequence 0 before the future is done, and then every notification.

        `keep`: the subscription is durable (`take_over`), if its query has one result for each state of the graph.
        `awaited`: clients get the answer to an update after the sink has its notification of it, so that their next
        message meets a receiver that knows the update. A query that is re-evaluated is not awaited.
        Raises `TooManyRequests` if too much is held for the client.
        """
        charge = self._charges.subscription(query, alias, sink)

        def begin(ready: Ready, prepared: PreparedQuery) -> None:
            def begun(outcome: ActiveSubscription | Exception) -> None:
                if isinstance(outcome, ActiveSubscription):
                    charge.begun(outcome.spuid)
                    if awaited:
                        self._engine.spus.registry.awaited.add(outcome.spuid)
                    incremental = self._engine.spus.registry.is_incremental(outcome.spuid)
                    if keep and repeatable(query.sparql, incremental=incremental):
                        self._durable.add(outcome.spuid, query, reevaluated=not incremental)
                ready(outcome)

            charge.begin()
            self._engine.begin(prepared, charge.sink, alias, query.source, self._clock.wall(), begun)

        return self._compiled(query, begin, charge.done)

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription. Its sink is not called after the future is done. The future raises `NotFound`."""

        def end() -> None:
            self._durable.remove(spuid)
            self._charges.forget(spuid)
            self._engine.unsubscribe(spuid)

        return self._on_writer(end)

    def transfer(self, spuid: str, client: str) -> Future[None]:
        """Charge another client for a subscription, which continues it. Does nothing if the subscription has ended."""

        def transfer() -> None:
            self._charges.transfer(spuid, client)
            self._engine.spus.registry.transfer(spuid, client)

        return self._on_writer(transfer)

    def take_over(self, sink: Callable[[str], Sink]) -> Future[list[RestoredSubscription]]:
        """Return the durable subscriptions of the previous process, and set their sinks. Must be called once."""

        def charged(spuid: str, query: QueryRequest) -> Sink:
            return self._charges.restored(spuid, query, sink(spuid))

        return self._on_writer(lambda: self._recovery.take_over(charged))

    def explain(self, query: QueryRequest) -> Future[Explanation]:
        """Explain how a subscription to a query is, or would be, kept up to date. Evaluates and subscribes nothing."""

        def explain(ready: Callable[[Explanation], None], prepared: PreparedQuery) -> None:
            ready(self._engine.explain_prepared(prepared))

        return self._compiled(query, explain)

    def on_writer(self, action: Callable[[], T]) -> Future[T]:
        """Run a function between two commits, on the writer thread."""
        return self._on_writer(action)

    def follow(
        self, begin: Callable[[LiveGraph], None], committed: Callable[[Sequence[ChangeSet], int], None]
    ) -> Future[None]:
        """Pass the graph to `begin`, and from then on each committed change to `committed`.

        Both are called on the writer thread. `committed` gets the change sets of a commit, and its time in microseconds
        since 1970; it must not block.
        """

        def follow() -> None:
            begin(self._engine.graph)
            self._writer.committed = committed

        return self._on_writer(follow)

    def receipts(self) -> Future[bytes]:
        """Return the receipts of the last committed updates, concatenated, oldest first.

        They include the gateway's own updates that were requested before the call.
        """
        return self._on_writer(self._journal.receipts)

    def load(self, content: ChangeSet) -> None:
        """Add quads to the graph. Only for a scheduler without a writer thread, whose data are in memory only."""
        self._engine.restore((content,))

    def turn(self) -> None:
        """Run waiting work up to one commit on this thread. Only for a scheduler without a writer thread."""
        self._writer.turn()

    def drain(self) -> None:
        """Run all waiting work on this thread, and work that follows from it.

        Only for a scheduler without a writer thread.
        """
        # An update that is evaluated in another process counts as pending while the queue is empty.
        while self._writer.turn() or self._queue.pending_updates:
            pass

    # Information and decisions of operators

    @property
    def processing(self) -> Processing:
        """Whether subscribed queries are re-evaluated one at a time or in parallel."""
        return self._workers.processing

    @processing.setter
    def processing(self, processing: Processing) -> None:
        """Change the processing at any time. It applies to the evaluations that begin later, and not to results."""
        self._workers.processing = processing

    @property
    def booster(self) -> Booster:
        """Whether subscribed queries are evaluated incrementally."""
        return self._settings.booster

    @property
    def spu_workers(self) -> int:
        """Number of threads that evaluate subscribed queries with parallel processing."""
        return self._workers.threads

    @property
    def figures(self) -> Figures:
        """Costs of all updates so far, by phase."""
        return self._engine.performance.figures()

    @property
    def pending_updates(self) -> int:
        """Number of updates that wait or are being carried out."""
        return self._queue.pending_updates

    @property
    def pending_queries(self) -> int:
        """Number of queries that wait or are being answered."""
        return self._readers.pending

    @property
    def quads(self) -> int:
        """Number of quads of the live graph."""
        return len(self._engine.graph)

    @property
    def loads(self) -> tuple[LimitUsage, ...]:
        """Use of the limits of the settings."""
        settings, quota = self._settings, self._quota
        client, held = quota.heaviest()
        graph, most_graph = self._engine.graph_size
        return (
            LimitUsage("engine.max_pending_updates", self.pending_updates, settings.max_pending_updates),
            LimitUsage("engine.max_pending_queries", self._readers.most_pending, settings.max_pending_queries),
            LimitUsage("engine.max_pending_timers", self.pending_timers, settings.max_pending_timers),
            LimitUsage("engine.max_graph_bytes", graph, most_graph),
            LimitUsage("limits.max_total_bytes", quota.total, quota.max_total),
            LimitUsage("limits.max_client_bytes", held, quota.max_client, client),
        )

    def spu_reports(self, cost: Cost, most: int) -> SpuReports:
        """Return the most expensive subscribed queries. It takes up to 50 ms on a Raspberry Pi."""
        return report(self._engine.spus.registry, cost, most)

    @property
    def pending_evaluations(self) -> int:
        """Number of subscribed queries whose result is older than the last commit: they wait or are being evaluated."""
        return self._engine.spus.pending

    @property
    def evaluations(self) -> Usage:
        """Costs of the evaluations of all re-evaluated subscriptions so far."""
        return self._engine.spus.reevaluation.total

    @property
    def subscriptions(self) -> int:
        """Number of active subscriptions."""
        return self._engine.spus.subscriptions

    @property
    def spus(self) -> int:
        """Number of SPUs that serve them."""
        return self._engine.spus.spus

    @property
    def subscription_faults(self) -> int:
        """Number of subscriptions that ended because of a bug of the gateway, since the start."""
        return self._engine.spus.delivery.faults

    @property
    def sequence(self) -> int:
        """Sequence number of the last update in the journal."""
        return self._journal.sequence

    @property
    def ready(self) -> bool:
        """Whether requests are accepted and carried out."""
        return self._queue.open and self._writer.alive

    @property
    def pending_timers(self) -> int:
        """Number of pending delayed updates."""
        return len(self._timers)

    @property
    def storage_failing(self) -> str:
        """Reason of a failed last commit, or why the next one cannot succeed; otherwise empty."""
        return self._journal.fault or self._writer.storage_failing

    @property
    def storing(self) -> bool:
        """Whether the writer waits for the disk."""
        return self._writer.storing

    @property
    def busy_seconds(self) -> float:
        """Seconds that the writer has worked on its current piece of work; 0 while it is idle."""
        return self._writer.busy_seconds

    @property
    def waiting_seconds(self) -> float:
        """Seconds that the oldest request has waited for the writer; 0 if none waits."""
        return self._queue.oldest_seconds

    @property
    def due_timers(self) -> int:
        """Number of due delayed updates that have not run, as far as the writer has found them."""
        return self._timers.due

    def close(self, timeout: float = 5.0) -> bool:
        """Stop: refuse new requests, carry out waiting ones, close the journal. Returns False after `timeout` seconds.

        After half of the time it refuses the waiting requests (`NotReady`). No client has received a success answer for
        them.
        """
        self._queue.close()
        self._readers.close()
        self._compile_queue.close()
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
        """Let the writer notify subscribers of evaluated results. After `close` no subscriber is left."""
        with contextlib.suppress(NotReady):
            self._queue.put(Task(self._deliver))

    def _deliver(self) -> None:
        self._engine.deliver(_DELIVERIES)

    def _submit(self, client: str, action: Callable[[], None]) -> None:
        """Run a function on the writer thread as a task of a client. After `close` no client waits for it."""
        with contextlib.suppress(NotReady):
            self._queue.put(Task(action, client))

    # On the caller's thread

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnly(self.read_only)

    def _on_writer(self, action: Callable[[], T], source: str = GATEWAY, access: Access = ANYBODY) -> Future[T]:
        return self._queued(Task(action, source, access.priority))

    def _compiled(
        self,
        query: QueryRequest,
        action: Callable[[Callable[[T | Exception], None], PreparedQuery], None],
        done: Callable[[Future[T]], None] | None = None,
    ) -> Future[T]:
        """Compile a query, and use it on the writer thread. `done` is called at the end."""
        task = self._compiler.task(query, action)
        if done is not None:
            task.future.add_done_callback(done)
        return task.future if task.future.done() else self._queued(task)

    def _queued(self, task: Task[T]) -> Future[T]:
        try:
            self._queue.put(task)
        except EdgeError as error:
            task.failed(error)
        return task.future
