"""Updates that need several attempts: their evaluations in forked processes, and their staged changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from edge.engine.queries.evaluator import World
from edge.engine.queries.forked_evaluation import Child
from edge.engine.queries.oxigraph_queries import COUNTED_LIMIT, WHOLE_LIMIT
from edge.engine.queries.subscription_index import Key, SubscriptionIndex
from edge.engine.store.forked_mirror import ForkedMirror
from edge.engine.store.transaction import Transaction
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.engine.updates.read_set import read_set
from edge.engine.updates.staged_change import STAGED_FROM, Operation, StagedChange
from edge.engine.updates.update_attempt import Documents, LongUpdate, Mode, Recorded, UpdateAttempt
from edge.engine.updates.update_plan import Load, Modify, is_data
from edge.engine.updates.update_processor import UpdateProcessor


class UpdateAttempts:
    """All attempts under way. The engine reports each change of the live graph to them."""

    def __init__(self, world: World, updates: UpdateProcessor) -> None:
        self._graph = world.graph
        self._forked = world.forked
        self._rules = world.rules
        self._mirror = world.mirror
        self._updates = updates
        self._reads: SubscriptionIndex[UpdateAttempt] = SubscriptionIndex(world.graph)
        """Evaluations in forked processes, by the patterns that they read."""
        self.reading: dict[UpdateAttempt, None] = {}
        """All evaluations in forked processes."""
        self.staged: dict[UpdateAttempt, None] = {}
        """Attempts with a staged change."""
        self.releasing: deque[Iterator[None]] = deque()
        """References of ended staged changes, which are released piece by piece."""

    def evaluate(self, updates: Sequence[PreparedUpdate], attempt: UpdateAttempt, now: int) -> Child[list[Recorded]]:
        """Start to evaluate updates in a forked process. No transaction may be uncommitted. Raises `EdgeError`.

        From then on, an attempt is marked with a conflict when an update changes something that it reads.
        """
        if not self._forked.open:
            raise self._forked.closed()
        rules = self._rules
        general = any(update.plan.needs_mirror for update in updates)
        mirror = ForkedMirror(self._mirror.open() if general else None)
        processor = self._updates.outside(mirror)

        def evaluate() -> list[Recorded]:
            found: list[Recorded] = []
            for number, update in enumerate(updates):
                found.append(Recorded())
                transaction = processor.run(
                    update,
                    now,
                    mode=Mode.OUTSIDE,
                    recorded=found[-1],
                    documents=None if attempt.documents is None else attempt.documents[number],
                )
                found[-1].steps = processor.steps
                mirror.note(transaction.change_set())
            return found

        if general:
            child = self._forked.begin(evaluate, rules.whole_timeout, WHOLE_LIMIT)
        else:
            child = self._forked.begin(evaluate, rules.settings.query_timeout, COUNTED_LIMIT)
        # After the fork, but still on the writer thread: no update can fall between the fork and the watched patterns.
        self._begin_reading(updates, attempt)
        return child

    def _begin_reading(self, updates: Sequence[PreparedUpdate], attempt: UpdateAttempt) -> None:
        dictionary = self._graph.dictionary
        keys: set[Key] = set()
        for update in updates:
            constants = dictionary.intern_values(update.constants)
            read, names = read_set(update.plan, constants, self._graph, self._rules)
            keys |= read
            attempt.graph_names |= names
        attempt.keys = tuple(keys)
        for key in attempt.keys:
            self._reads.add(key, attempt)
        self.reading[attempt] = None
        dictionary.sweep()

    def end_reading(self, attempt: UpdateAttempt) -> None:
        """Stop to look for conflicts with an evaluation."""
        if attempt in self.reading:
            del self.reading[attempt]
            for key in attempt.keys:
                self._reads.remove(key, attempt)

    def note(self, transaction: Transaction) -> None:
        """Mark the evaluations that have read quads of a transaction, and record the change for staged changes."""
        for attempt in self._reads.hits(transaction.quads, transaction.ids):
            attempt.conflict = True
        for attempt in self.staged:
            if attempt.staged is not None:
                attempt.staged.note(transaction.quads)
        if transaction.graphs:
            for attempt in self.reading:
                # A created or dropped graph changes the solutions of `GRAPH ?g`, although no quad of the read patterns
                # changed.
                attempt.conflict |= attempt.graph_names

    def to_stage(self, updates: Sequence[PreparedUpdate], attempt: UpdateAttempt) -> Sequence[Operation] | None:
        """Return the operations of an update that is to be staged, or None.

        Raises `LongUpdate` if they are not known yet, `ResultTooLarge` if they change too many quads.
        """
        if attempt.unstaged or attempt.error is not None or len(updates) != 1:
            return None
        (update,) = updates
        plan, found = update.plan, attempt.found
        if update.to_ledger or update.notes:
            return None
        if found is None and not attempt.large and plan.only_modifies and plan.named < STAGED_FROM:
            return None
        operations: list[Operation | Modify] = []
        for number, operation in enumerate(plan.operations):
            quads = None if found is None else found[0][number]
            if quads is not None:
                operations.append(quads)
            elif isinstance(operation, Load):
                documents: Documents = attempt.documents[0] if attempt.documents is not None else {}
                operations.append(((), documents[number]))
            else:
                operations.append(operation)
        known = [each for each in operations if not isinstance(each, Modify) or is_data(each)]
        size = sum(map(self._updates.size, known))
        if not attempt.large and size + sum(map(self._updates.replaced, known)) < STAGED_FROM:
            return None
        self._updates.check_size(size)
        if len(known) < len(operations):
            raise LongUpdate
        return [each.data(update.constants) if isinstance(each, Modify) else each for each in known]

    def stage(self, update: PreparedUpdate, attempt: UpdateAttempt, operations: Sequence[Operation]) -> None:
        """Begin to prepare the change of an update in pieces."""
        attempt.staged = self._updates.stage(update.access, operations)
        self.staged[attempt] = None

    def end_staged(self, attempt: UpdateAttempt, staged: StagedChange, *, applied: bool) -> None:
        """End a staged change."""
        attempt.staged = None
        del self.staged[attempt]
        self.releasing.append(staged.release(applied=applied))

    def abandon(self, attempt: UpdateAttempt) -> None:
        """Discard the evaluation or the staged change of an update that will not be executed."""
        self.end_reading(attempt)
        if attempt.staged is not None:
            self.end_staged(attempt, attempt.staged, applied=False)

    def release(self) -> None:
        """Release a piece of the references of ended staged changes."""
        if self.releasing and next(self.releasing[0], self) is self:
            self.releasing.popleft()

    def fetch(self, updates: Sequence[PreparedUpdate]) -> Sequence[Documents]:
        """Fetch the documents that updates load. May run on any thread. Raises `EdgeError`."""
        return [
            {
                number: self._updates.fetch(operation)
                for number, operation in enumerate(update.plan.operations)
                if isinstance(operation, Load)
            }
            for update in updates
        ]
