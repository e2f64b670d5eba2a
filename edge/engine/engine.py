"""The SUB Engine as one object: a request and a time go in, an outcome comes out.

It knows neither sockets nor threads nor the wall clock. Whoever runs it decides when what it did is durable and then
lets the notifications go, or takes it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyoxigraph as ox

from edge.engine.apart import Apart
from edge.engine.atomic import GraphName
from edge.engine.changes import NO_CHANGE, ChangeSet, Statement
from edge.engine.effort import Effort
from edge.engine.evaluator import World
from edge.engine.explanation import Explanation
from edge.engine.general import Rules
from edge.engine.graph import LiveGraph
from edge.engine.ledger import Ledger
from edge.engine.mirror import Mirror
from edge.engine.performance import UNSPENT, PerformanceModel, Spent, clock
from edge.engine.plan import UpdatePlan
from edge.engine.query import QueryProcessor
from edge.engine.query_plans import QueryPlans
from edge.engine.requests import QueryRequest, Sink, Subscription, UpdateOutcome, UpdateRequest
from edge.engine.spu_manager import Activation, SpuManager
from edge.engine.update import Loader, Transaction, UpdateProcessor
from edge.protocol.access import Access
from edge.protocol.errors import UpdateFailed
from edge.protocol.results import Term


@dataclass(slots=True)  # frozen, it would take three times as long to make, and so would the next
class PreparedUpdate:
    """An update that is known to be legal."""

    plan: UpdatePlan
    constants: Sequence[Term]
    """That the plan leaves open."""
    bindings: Mapping[str, Term]
    access: Access
    spent: int = 0
    """Nanoseconds that it took to compile."""
    notes: Sequence[object] = ()
    """For the ledger."""
    beside: bool = False
    """Whether all that it inserts goes there, too."""


@dataclass(slots=True)
class Executed:
    """An update that the live graph has seen and nobody has been told of yet."""

    changes: ChangeSet
    activations: list[Activation] = field(default_factory=list)
    spent: Spent = UNSPENT
    beside: Sequence[Statement] = ()
    """What it added to the graph of the ledger."""
    entries: int = 0
    """What it wrote down in the ledger."""

    @property
    def outcome(self) -> UpdateOutcome:
        """What the publisher is told."""
        added, removed, _, _ = self.changes.sizes
        return UpdateOutcome(added, removed, self.entries)


class Engine:
    """The live graph and everything that works on it. One thread may write; queries may run on others."""

    def __init__(self, rules: Rules, load: Loader) -> None:
        self.graph = LiveGraph(Effort(rules.max_steps, rules.max_text))
        self.rules = rules
        self.performance = PerformanceModel()
        self.writing = threading.RLock()
        """Held by the writer while it moves the live graph, or what is noted of it; not while it waits for the disk."""
        self._unshown: list[ChangeSet] = []
        """What was executed and is not committed yet, or was not to be."""
        self._writer_mirror = Mirror(self._dump, self.writing, shared=False)
        self._reader_mirror = Mirror(self._dump, self.writing, shared=True, ahead=lambda: self._unshown)
        self.apart = Apart(rules.max_query_memory)
        """Where what may take long is evaluated. Whoever runs the engine closes it."""
        world = World(self.graph, self._writer_mirror, self.apart, rules)
        self._updates = UpdateProcessor(world, load)
        self.spus = SpuManager(world, QueryPlans(self.graph, rules), self.performance)
        self.queries = QueryProcessor(self.graph, self._reader_mirror, rules)
        self._ledger: Ledger | None = None

    def write_down(self, ledger: Ledger) -> None:
        """Have a ledger from now on. Raises `UpdateFailed` where its graph is one that has been filled already."""
        graph = self.graph.intern_graph(ox.NamedNode(ledger.graph))
        if graph in self.graph.graphs:
            raise UpdateFailed(f"The graph {ledger.graph} has been used for something else; drop it")
        self.graph.dictionary.retain(graph)
        self._updates.ledger = graph
        self._ledger = ledger

    def restore(self, changes: Iterable[ChangeSet]) -> None:
        """Apply journalled change sets."""
        for change in changes:
            self._apply(change)
            self.graph.dictionary.sweep()

    def replay(self, changes: ChangeSet, at: int) -> None:
        """Apply a journalled change set, and tell the subscribers what it changes. `at`: when it was made."""
        graph = self.graph
        transaction = Transaction(graph)
        for name in changes.created:
            transaction.create(graph.intern_graph(name))
        transaction.apply(map(graph.intern_quad, changes.removed), map(graph.intern_quad, changes.added))
        for name in changes.dropped:
            transaction.drop(graph.intern_graph(name))
        self._writer_mirror.note(changes)
        self.spus.notify(self.spus.activate(transaction, at))
        graph.dictionary.sweep()

    def prepare(self, request: UpdateRequest) -> PreparedUpdate:
        """Compile an update before it is queued. Raises `ParsingFailed`, `Forbidden`, `UpdateFailed`. Any thread."""
        began = clock()
        if request.beside and self._ledger is None:
            raise UpdateFailed("No history is kept here")
        plan, constants = self._updates.plan(request)
        return PreparedUpdate(
            plan, constants, request.bindings, request.access, clock() - began, request.notes, request.beside
        )

    def execute(self, updates: Sequence[PreparedUpdate], now: int) -> list[Executed]:
        """Run updates in order, all or none. `now` in microseconds since 1970. Raises `EdgeError`: nothing changed."""
        done: list[Executed] = []
        with self.writing:
            try:
                for update in updates:
                    done.append(self._execute(update, now))  # what is done so far must be known
                    self._unshown.append(done[-1].changes)
                    if self._ledger is not None and (update.notes or done[-1].beside):
                        done[-1].entries = self._ledger.take(update.notes, done[-1].beside, now)
            except BaseException:
                self.undo(done)
                raise
        return done

    def undo(self, executed: Sequence[Executed]) -> None:
        """Take back what was executed last, which could not be made durable."""
        with self.writing:
            for step in reversed(executed):
                inverse = step.changes.inverse()
                self._apply(inverse)
                self._unshown.pop()
                self._writer_mirror.note(inverse)
                self.spus.undo(step.activations)
                if self._ledger is not None and step.entries:
                    self._ledger.give_back(step.entries)

    def show(self, executed: Sequence[Executed]) -> None:
        """Make all that was executed visible to queries: before anybody is told that it is done."""
        with self.writing:
            for step in executed:
                self._reader_mirror.note(step.changes)
            self._unshown.clear()

    def publish(self, executed: Sequence[Executed]) -> int:
        """Tell the subscribers of what was shown. Returns the notifications sent."""
        sent = 0
        for step in executed:
            began = clock()
            notified = self.spus.notify(step.activations)
            self.performance.published(step.spent, clock() - began, notified)
            sent += notified
        self.graph.dictionary.sweep()
        return sent

    def subscribe(self, request: QueryRequest, sink: Sink, alias: str | None, now: int) -> Subscription:
        """Subscribe to a query; the sink gets sequence 0 before this returns. Raises `ParsingFailed`, `Forbidden`."""
        try:
            return self.spus.create(_seen(request), sink, alias, now)
        finally:
            self.graph.dictionary.sweep()

    def resume(self, request: QueryRequest, sink: Sink, spuid: str, sequence: int, now: int) -> tuple[str, ...]:
        """Go on with a subscription of another process: see `SpuManager.resume`."""
        try:
            return self.spus.resume(_seen(request), sink, spuid, sequence, now)
        finally:
            self.graph.dictionary.sweep()

    def unsubscribe(self, spuid: str) -> None:
        """End a subscription. Raises `NotFound`."""
        self.spus.destroy(spuid)
        self.graph.dictionary.sweep()

    def explain(self, request: QueryRequest) -> Explanation:
        """How a subscription to a query is, or would be, kept up to date. Raises `ParsingFailed`, `Forbidden`."""
        try:
            return self.spus.explain(_seen(request))
        finally:
            self.graph.dictionary.sweep()

    def _execute(self, update: PreparedUpdate, now: int) -> Executed:
        began = clock() - update.spent
        self.performance.begin()
        transaction = self._updates.run(
            update.plan, update.constants, update.bindings, update.access, now, beside=update.beside
        )
        beside = transaction.entries() if transaction.beside else ()
        changes = transaction.change_set()
        if not changes:
            self._writer_mirror.note(NO_CHANGE)
            return Executed(NO_CHANGE, spent=self.performance.executed(clock() - began), beside=beside)
        self._writer_mirror.note(changes)
        try:
            activations = self.spus.activate(transaction, now)
        except BaseException:
            transaction.undo()
            self._writer_mirror.note(changes.inverse())
            raise
        return Executed(changes, activations, self.performance.executed(clock() - began), beside)

    def _apply(self, change: ChangeSet) -> None:
        graph = self.graph
        for name in change.created:
            graph.create(graph.intern_graph(name))
        for quad in change.removed:
            graph.remove(graph.intern_quad(quad))
        for quad in change.added:
            graph.add(graph.intern_quad(quad))
        for name in change.dropped:
            graph.drop(graph.intern_graph(name))

    def _dump(self) -> tuple[Iterable[ox.Quad], Iterable[GraphName]]:
        return self.graph.quads(), self.graph.named_graphs()


def _seen(request: QueryRequest) -> QueryRequest:
    """A query on what its client may see: clients that may see the same share their SPUs."""
    return QueryRequest(request.sparql, request.dataset.seen_by(request.access))
