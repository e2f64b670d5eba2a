"""SUB Engine as one object: it takes a request and a time, and returns an outcome.

The engine uses no sockets, no threads and no wall clock. Its caller decides when the effects are durable, and then
sends the notifications or undoes the updates.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import pyoxigraph as ox

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.admission.graph_quota import GraphQuota
from edge.engine.executed import Executed
from edge.engine.journal.ledger import Ledger
from edge.engine.performance import PerformanceModel, clock
from edge.engine.queries.evaluator import World
from edge.engine.queries.forked_evaluation import Child, ForkedEvaluator
from edge.engine.queries.oxigraph_queries import QueryRules, parse
from edge.engine.queries.query_plans import QueryPlans
from edge.engine.queries.query_processor import QueryProcessor
from edge.engine.requests import ActiveSubscription, Precondition, QueryRequest, Sink, UpdateRequest
from edge.engine.store.changes import NO_CHANGE, ChangeSet
from edge.engine.store.graph import LiveGraph
from edge.engine.store.graph_copy import GraphCopy
from edge.engine.store.mirror import Mirror
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.transaction import Transaction
from edge.engine.subscriptions.activation import Activation
from edge.engine.subscriptions.evaluation_parts import EVALUATION_STEPS
from edge.engine.subscriptions.explanation import Explanation
from edge.engine.subscriptions.pending_subscriber import Ready
from edge.engine.subscriptions.spu_manager import PreparedQuery, SpuManager
from edge.engine.updates.attempts import UpdateAttempts
from edge.engine.updates.loaded_documents import Loader
from edge.engine.updates.preconditions import Preconditions
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.engine.updates.staged_change import NotStaged, StagedChange
from edge.engine.updates.update_attempt import (
    LAST_STEPS,
    Documents,
    LargeUpdate,
    LongUpdate,
    Mode,
    Unfinished,
    UpdateAttempt,
)
from edge.engine.updates.update_plan import Quads
from edge.engine.updates.update_processor import UpdateProcessor
from edge.protocol.errors import UpdateConflict, UpdateFailed

T = TypeVar("T")

_LONGEST_PARSED: Final = 65_536
"""Characters of the longest subscribed query that is parsed in this process: about 10 ms."""
_PARSER_MEMORY: Final = 256
"""Memory limit of Oxigraph's parser in bytes for each character. It took 83 for `VALUES ?x { 1 1 1 ... }`."""
_PARSING: Final = 60.0
"""Time limit in seconds for parsing a long text."""
_SWEPT: Final = 5_000
"""Terms that one sweep checks for references: a few milliseconds."""


class Engine:
    """The live graph and all components that work on it. One thread may write; queries may run on other threads."""

    def __init__(
        self, rules: QueryRules, load: Loader, max_graph_bytes: int = 0, quota: ByteQuota | None = None
    ) -> None:
        """`max_graph_bytes`: 0 for a quarter of the machine's memory. `quota` is charged for subscription results."""
        self.graph = LiveGraph(StepBudget(rules.settings.max_steps, rules.max_text))
        self._graph_quota = GraphQuota(self.graph, max_graph_bytes)
        self.contributions = self._graph_quota.contributions
        self.rules = rules
        self.performance = PerformanceModel()
        self.writing = threading.RLock()
        """Held by the writer while it changes the live graph or its copies; not while it waits for the disk."""
        self._unshown: list[ChangeSet] = []
        """Changes of executed updates that are not committed yet."""
        self._writer_mirror = Mirror(self.graph, self.writing, shared=False)
        self._reader_mirror = Mirror(self.graph, self.writing, shared=True, ahead=lambda: self._unshown)
        self.forked = ForkedEvaluator(rules.settings.max_query_memory)
        """Runs evaluations that may take long."""
        world = World(self.graph, self._writer_mirror, self.forked, rules)
        self._updates = UpdateProcessor(world, load)
        self.attempts = UpdateAttempts(world, self._updates)
        committed = World(self.graph, self._reader_mirror, self.forked, rules)
        plans = QueryPlans(self.graph, replace(rules, parse=self._parse))
        self.spus = SpuManager(world, committed, plans, self.performance, quota or ByteQuota())
        self.queries = QueryProcessor(self.graph, self._reader_mirror, rules)
        self.preconditions = Preconditions(self.graph)
        self._ledger: Ledger | None = None
        self._graph_copies: list[GraphCopy] = []

    def begin_copy(self) -> GraphCopy:
        """Start to copy the live graph while updates continue. Taking a piece requires the lock `writing`."""
        with self.writing:
            copy = GraphCopy(self.graph)
            self._graph_copies.append(copy)
        return copy

    def end_copy(self, copy: GraphCopy) -> ChangeSet:
        """Return the changes since the copy began. They override its pieces."""
        with self.writing:
            if copy in self._graph_copies:
                self._graph_copies.remove(copy)
            return copy.take_changes()

    def try_out(self, action: Callable[[LiveGraph], T], seconds: float) -> Child[T]:
        """Start a function on the graph in a forked process. See `Scheduler.try_out`."""
        # With the lock, so that no change of the graph is half done at the fork.
        with self.writing:
            return self.forked.begin(lambda: action(self.graph), seconds, "engine.query_timeout")

    def close(self) -> None:
        """Stop evaluations in forked processes, and copies in the background."""
        self.forked.close()
        self._writer_mirror.close()
        self._reader_mirror.close()

    def mirror_ready(self) -> bool:
        """Return whether the writer's mirror is filled. If not, start to fill it in the background."""
        self._writer_mirror.prepare()
        return self._writer_mirror.ready or not self.forked.open

    def write_down(self, ledger: Ledger) -> None:
        """Attach a ledger. Raises `UpdateFailed` if its graph has been used for other data."""
        graph = self.graph.intern_graph(ox.NamedNode(ledger.graph))
        if graph in self.graph.graphs:
            raise UpdateFailed(f"The graph {ledger.graph} has been used for something else; drop it")
        self.graph.dictionary.retain(graph)
        self._updates.ledger = graph
        self._ledger = ledger

    def restore(self, changes: Iterable[ChangeSet]) -> None:
        """Apply change sets of the journal."""
        for change in changes:
            self._apply(change)
            self._note(change)
            self._reader_mirror.note(change)
            self.graph.dictionary.sweep()

    def replay(self, changes: ChangeSet, at: int) -> None:
        """Apply a change set of the journal and notify the subscribers. `at`: time of the change set."""
        for _ in self.replay_in_parts(changes, at, sys.maxsize):
            pass

    def replay_in_parts(self, changes: ChangeSet, at: int, most: int, *, settle: bool = True) -> Iterator[int]:
        """Apply a change set as `replay` does, and notify the subscribers part by part. Yields the steps of each part.

        `most`: steps of a part, about; see `evaluation_parts`. Nothing else may use the engine before the end.
        `settle`: evaluate the queries without delta rules, too. Without it, a later call does so: this one is a part of
        its change.
        """
        graph = self.graph
        transaction = Transaction(graph)
        for name in changes.created:
            transaction.create(graph.intern_graph(name))
        transaction.apply(map(graph.intern_quad, changes.removed), map(graph.intern_quad, changes.added))
        for name in changes.dropped:
            transaction.drop(graph.intern_graph(name))
        self._note(changes)
        self._reader_mirror.note(changes)
        yield from self.spus.activate_in_parts(transaction, at, most)
        if settle:
            yield from (EVALUATION_STEPS for _ in self.spus.reevaluated.settle_in_parts())
        graph.dictionary.sweep()

    def prepare(self, request: UpdateRequest) -> PreparedUpdate:
        """Compile an update for the queue. Raises `ParsingFailed`, `Forbidden`, `UpdateFailed`. Any thread."""
        began = clock()
        if request.to_ledger and self._ledger is None:
            raise UpdateFailed("No history is kept here")
        plan, constants = self._updates.plan(request)
        return PreparedUpdate(
            plan,
            constants,
            request.bindings,
            request.access,
            clock() - began,
            request.notes,
            request.to_ledger,
            request.source,
            request.condition,
        )

    def must_fill(self, updates: Sequence[PreparedUpdate]) -> bool:
        """Return whether updates need the writer's mirror and it is not filled. `fill` then runs on another thread."""
        return not self._writer_mirror.ready and any(update.plan.needs_mirror for update in updates)

    def fill(self) -> None:
        """Fill the writer's mirror while updates continue. Not on the writer thread. May raise `NotReady`."""
        self._writer_mirror.fill()

    def execute(
        self, updates: Sequence[PreparedUpdate], now: int, attempt: UpdateAttempt | None = None
    ) -> list[Executed]:
        """Execute updates in order, all or none. `now`: microseconds since 1970. After an error nothing has changed.

        With an attempt, the updates may not take long: the method uses the attempt's result if it has one, and
        otherwise raises `LongUpdate` at the step budget. Raises `EdgeError`.
        """
        if attempt is None:
            return self._run(updates, now, Mode.WHOLE, None)
        try:
            return self._execute_briefly(updates, now, attempt)
        except LongUpdate:
            raise
        except BaseException:
            self.attempts.end_reading(attempt)
            raise

    def _execute_briefly(self, updates: Sequence[PreparedUpdate], now: int, attempt: UpdateAttempt) -> list[Executed]:
        # Permissions first: a client without them must not make the gateway fetch documents.
        loads = attempt.documents is None and attempt.error is None and any(update.plan.loads for update in updates)
        if loads:
            for update in updates:
                self._updates.check_targets(update.plan, update.access)
        for update in updates if attempt.staged is None else ():
            # Before long work, and again after it: other updates run meanwhile.
            if update.condition is not None:  # without a call: it is rare
                self._check_condition(update.condition)
        if loads:
            raise LongUpdate
        if attempt.staged is None and (operations := self.attempts.to_stage(updates, attempt)) is not None:
            self.attempts.stage(updates[0], attempt, operations)
            raise Unfinished
        if attempt.staged is not None:
            with self.writing:
                return [self._execute_staged(updates[0], now, attempt, attempt.staged)]
        # A process has evaluated the updates. Its result holds only if no other update changed what it read.
        if attempt.over:
            self.attempts.end_reading(attempt)
            try:
                return self._run(updates, now, Mode.WHOLE, attempt, attempt.take())
            except UpdateConflict as conflict:
                return self._run_last(updates, now, attempt, conflict)
        return self._run(updates, now, Mode.WHOLE if attempt.unstaged else Mode.FIRST, attempt)

    def _check_condition(self, condition: Precondition) -> None:
        with self.writing:
            self.preconditions.check(condition)

    def _run_last(
        self, updates: Sequence[PreparedUpdate], now: int, attempt: UpdateAttempt, conflict: UpdateConflict
    ) -> list[Executed]:
        """Execute updates on the writer after several conflicts. Raises the conflict if they take too long."""
        if attempt.needed > LAST_STEPS:
            raise conflict
        try:
            return self._run(updates, now, Mode.LAST, attempt)
        except LongUpdate:
            raise conflict from None

    def _run(
        self,
        updates: Sequence[PreparedUpdate],
        now: int,
        mode: Mode,
        attempt: UpdateAttempt | None,
        found: Sequence[Sequence[Quads | None]] | None = None,
    ) -> list[Executed]:
        documents = None if attempt is None else attempt.documents
        done: list[Executed] = []
        with self.writing:
            for update in updates:
                if update.condition is not None:
                    self.preconditions.check(update.condition)
            try:
                for number, update in enumerate(updates):
                    try:
                        known = None if found is None else found[number]
                        loaded = None if documents is None else documents[number]
                        done.append(self._execute(update, now, mode, known, loaded))
                    finally:
                        if attempt is not None:
                            # Also those of an update that fails: its client pays for them.
                            attempt.steps += self._updates.steps
                    self._unshown.append(done[-1].changes)
                    if self._ledger is not None and (update.notes or done[-1].ledger_statements):
                        done[-1].entries = self._ledger.take(update.notes, done[-1].ledger_statements, now)
            except BaseException as error:
                self.undo(done)
                if attempt is not None and isinstance(error, LargeUpdate):
                    attempt.large = True
                    if self.attempts.to_stage(updates, attempt) is not None:
                        raise Unfinished from None
                raise
        return done

    def _execute_staged(
        self, update: PreparedUpdate, now: int, attempt: UpdateAttempt, staged: StagedChange
    ) -> Executed:
        """Prepare a piece of a change and raise `Unfinished`, or apply it. After an `EdgeError` nothing has changed."""
        refreshes: list[Activation] = []
        try:
            if attempt.conflict:
                self.attempts.end_reading(attempt)
                attempt.take()
            if not staged.advance():
                raise Unfinished
            began = clock()
            self.performance.begin()
            # Again: other updates ran between the pieces.
            if update.condition is not None:
                self.preconditions.check(update.condition)
            # The order matters: `settle` computes the change for the current state, and until `apply` nothing else may
            # change the graph. Old results of refreshed subscriptions must be read before `apply`.
            changes = staged.settle()
            growth = self._graph_quota.take(changes, update.access, update.source, applied=False)
            refreshes = self.spus.replacement.detach_large(staged.net, staged.ids)
            transaction = staged.apply()
        except Unfinished:
            raise
        except NotStaged:
            attempt.unstaged = True
            self.attempts.end_staged(attempt, staged, applied=False)
            raise Unfinished from None
        except BaseException:
            self.spus.undo(refreshes)
            self.attempts.end_staged(attempt, staged, applied=False)
            raise
        self.attempts.end_staged(attempt, staged, applied=True)
        self.attempts.end_reading(attempt)
        attempt.found = None
        attempt.steps += staged.size
        try:
            executed = self._complete(update, now, transaction, changes, began, growth)
        except BaseException:
            self.spus.undo(refreshes)
            raise
        executed.activations += refreshes
        executed.encoded = staged.encoded
        self._unshown.append(executed.changes)
        if self._ledger is not None and executed.ledger_statements:
            try:
                executed.entries = self._ledger.take((), executed.ledger_statements, now)
            except BaseException:
                self.undo([executed])
                raise
        return executed

    def abandon(self, attempt: UpdateAttempt) -> None:
        """Discard the evaluation or the staged change of an update that will not be executed."""
        with self.writing:
            self.attempts.abandon(attempt)

    @property
    def untidy(self) -> bool:
        """Whether large changes have left work for `tidy`."""
        return bool(
            self.attempts.releasing
            or self.graph.dictionary.idle
            or self._writer_mirror.untidy
            or self._reader_mirror.untidy
            or (self._graph_copies and any(copy.untidy for copy in self._graph_copies))
        )

    def tidy(self) -> None:
        """Do a piece of the deferred work. The writer calls this between two requests."""
        with self.writing:
            self.attempts.release()
            for mirror in (self._writer_mirror, self._reader_mirror):
                mirror.tidy()
            for copy in self._graph_copies:
                copy.tidy()
            self.graph.dictionary.sweep(_SWEPT)

    def undo(self, executed: Sequence[Executed]) -> None:
        """Undo the last executed updates, which could not be made durable."""
        with self.writing:
            for step in reversed(executed):
                # The newest first, so that each transaction is undone in the state that it led to.
                inverse = step.changes.inverse()
                if step.transaction is not None:
                    step.transaction.undo()
                self._unshown.pop()
                self._note(inverse)
                self._graph_quota.give_back(step.growth, step.access)
                self._reader_mirror.note_undone(step.changes)
                self.spus.undo(step.activations)
                if self._ledger is not None and step.entries:
                    self._ledger.give_back(step.entries)
            if not self._unshown:  # otherwise `notified` does it, after the earlier notifications
                self.spus.delivery.end_damaged()

    def show(self, executed: Sequence[Executed]) -> None:
        """Make executed updates visible to queries, before their clients get an answer."""
        with self.writing:
            for step in executed:
                self._reader_mirror.note(step.changes)
            self._unshown.clear()

    def publish(self, executed: Sequence[Executed]) -> int:
        """Notify the subscribers of all shown updates. Return the number of notifications.

        Without evaluation threads, re-evaluated queries are evaluated here, after all updates.
        """
        sent = self.notify(executed)
        return sent + self.notified()

    @property
    def graph_size(self) -> tuple[int, int]:
        """Approximate bytes of the live graph, and their limit."""
        return self._graph_quota.size, self._graph_quota.limit

    def is_awaited(self, executed: Sequence[Executed]) -> bool:
        """Return whether a notification of these updates has to come before the answers to them."""
        awaited = self.spus.registry.awaited
        if awaited:
            for step in executed:
                for activation in step.activations:
                    if not awaited.isdisjoint(activation.spu.subscribers):
                        return True
        return False

    def notify(self, executed: Sequence[Executed]) -> int:
        """Notify the subscribers of some of the updates. After the last call, call `notified` once."""
        sent = 0
        for step in executed:
            began = clock()
            notified = self.spus.notify(step.activations)
            self.performance.published(step.spent, clock() - began, notified)
            sent += notified
        return sent

    def notified(self) -> int:
        """End the subscriptions that cannot continue, and remove unreferenced terms.

        Without evaluation threads, evaluate marked queries. Return the number of their notifications.
        """
        self.spus.delivery.end_damaged()
        sent = self._settle()
        self.graph.dictionary.sweep(_SWEPT)
        return sent

    def deliver(self, most: int) -> None:
        """Notify the subscribers of the results of evaluation threads, for at most `most` queries."""
        self.spus.reevaluated.deliver(most)
        self.graph.dictionary.sweep(_SWEPT)

    def prepare_query(self, request: QueryRequest) -> PreparedQuery:
        """Compile a query for a subscription. Raises `ParsingFailed`, `Forbidden`. May run on any thread."""
        return self.spus.prepare(_seen(request))

    def begin(self, query: PreparedQuery, sink: Sink, alias: str | None, client: str, now: int, ready: Ready) -> None:
        """Subscribe to a query: see `SpuManager.begin`."""
        try:
            self.spus.begin(query, sink, alias, client, now, ready)
            self._settle()
        finally:
            self.graph.dictionary.sweep()

    def subscribe(self, request: QueryRequest, sink: Sink, alias: str | None, now: int) -> ActiveSubscription:
        """Subscribe to a query without evaluation threads. The sink gets sequence 0 before the method returns.

        Raises `ParsingFailed`, `Forbidden`, and errors of the evaluation.
        """
        outcomes: list[ActiveSubscription | Exception] = []
        self.begin(self.prepare_query(request), sink, alias, request.source, now, outcomes.append)
        return self._begun(outcomes)

    def resume(self, request: QueryRequest, sink: Sink, spuid: str, sequence: int, now: int) -> tuple[str, ...]:
        """Continue a subscription of the previous process, before threads run. Return the columns of its result.

        See `SpuManager.resume`. Raises the errors of `subscribe`.
        """
        outcomes: list[ActiveSubscription | Exception] = []
        query = self.prepare_query(request)
        self.spus.resume(query, sink, spuid, sequence, request.source, now, outcomes.append)
        return self.spus.registry.variables(self._begun(outcomes).spuid)

    def _settle(self) -> int:
        """Evaluate and notify if the engine has no evaluation threads. Return the number of notifications."""
        return 0 if self.spus.reevaluation.threaded else self.spus.reevaluated.settle()

    def _begun(self, outcomes: Sequence[ActiveSubscription | Exception]) -> ActiveSubscription:
        """Return the outcome of a subscription, or raise its error."""
        self._settle()
        self.graph.dictionary.sweep()
        (outcome,) = outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def unsubscribe(self, spuid: str) -> None:
        """End a subscription. Raises `NotFound`."""
        self.spus.registry.destroy(spuid)
        self.graph.dictionary.sweep()

    def _parse(self, text: str, base_iri: str) -> str | None:
        """See `oxigraph_queries.parse`. A forked process parses long texts, because the parser holds the GIL."""
        if len(text) <= _LONGEST_PARSED:
            return parse(text, base_iri)
        memory = _PARSER_MEMORY * len(text)
        child = self.forked.begin(partial(parse, text, base_iri), _PARSING, "60 seconds for the parser", memory)
        return child.result()

    def explain(self, request: QueryRequest) -> Explanation:
        """Explain how a subscription is, or would be, kept up to date. Raises `ParsingFailed`, `Forbidden`."""
        return self.explain_prepared(self.prepare_query(request))

    def explain_prepared(self, query: PreparedQuery) -> Explanation:
        """Explain a compiled query."""
        try:
            return self.spus.explain(query)
        finally:
            self.graph.dictionary.sweep()

    def _execute(
        self,
        update: PreparedUpdate,
        now: int,
        mode: Mode,
        found: Sequence[Quads | None] | None,
        documents: Documents | None,
    ) -> Executed:
        began = clock() - update.spent
        self.performance.begin()
        transaction = self._updates.run(update, now, mode=mode, found=found, documents=documents)
        return self._complete(update, now, transaction, transaction.change_set(), began)

    def _complete(
        self,
        update: PreparedUpdate,
        now: int,
        transaction: Transaction,
        changes: ChangeSet,
        began: int,
        growth: int | None = None,
    ) -> Executed:
        """Pass a transaction to all components. `growth`: growth of the graph, if its quota was charged already.

        After an `EdgeError` the transaction is undone.
        """
        # Also without a change of the live graph: statements of the ledger do not enter it.
        ledger_statements = transaction.entries() if transaction.ledger_quads else ()
        if not changes:
            self._writer_mirror.note(NO_CHANGE)
            return Executed(
                NO_CHANGE, spent=self.performance.executed(clock() - began), ledger_statements=ledger_statements
            )
        try:
            if growth is None:
                # Before the mirror and the copies learn of the changes, so that a refusal has nothing to undo there.
                growth = self._graph_quota.take(changes, update.access, update.source)
        except BaseException:
            transaction.undo()
            raise
        self._note(changes)
        # Most of the time there are none, and each update would look for conflicts.
        attempts = self.attempts
        if attempts.reading or attempts.staged:
            attempts.note(transaction)
        if self.preconditions.watches:
            self.preconditions.note(transaction)
        try:
            activations = self.spus.activate(transaction, now)
        except BaseException:
            transaction.undo()
            self._note(changes.inverse())
            self._graph_quota.give_back(growth, update.access)
            raise
        spent = self.performance.executed(clock() - began)
        return Executed(
            changes, activations, spent, ledger_statements, growth=growth, access=update.access, transaction=transaction
        )

    def _note(self, changes: ChangeSet) -> None:
        """Pass changes of the live graph to its copies and the mirror."""
        self._writer_mirror.note(changes)
        for copy in self._graph_copies:
            copy.note(changes)

    def _apply(self, change: ChangeSet) -> None:
        graph = self.graph
        for name in change.created:
            graph.create(graph.intern_graph(name))
        for quad in change.removed:
            graph.remove(graph.intern_quad(quad))
        graph.add_all(graph.intern_quads(change.added))
        for name in change.dropped:
            graph.drop(graph.intern_graph(name))


def _seen(request: QueryRequest) -> QueryRequest:
    """Return a query on the readable graphs of its client. Clients with equal permissions share their SPUs."""
    return QueryRequest(request.sparql, request.dataset.seen_by(request.access))
