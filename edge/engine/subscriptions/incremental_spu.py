"""Incremental SPU: updated by the delta rules. It holds only the state of its stages."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.admission.byte_quota import ByteQuota
from edge.engine.operators.stages import Columns, Groups, Row, Stage, Weights, flow, long_texts, release, retain
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import too_long, too_many
from edge.engine.queries.query_plans import PlanMember
from edge.engine.requests import Delta
from edge.engine.subscriptions.deferred_first_result import DeferredFirstResult
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.plan_group import PlanGroup, every_solution
from edge.engine.subscriptions.spu import Spu
from edge.protocol.bag import Bag
from edge.protocol.errors import ResultTooLarge, TooManyRequests
from edge.protocol.results import Row as TermRow


class IncrementalSpu(Spu):
    """An SPU with incremental evaluation: a member of a plan group."""

    __slots__ = ("_stages", "_stateful", "begun", "deferred_results", "ended", "group", "open", "query")

    def __init__(
        self, group: PlanGroup[IncrementalSpu], open_: Row, world: World, query: PlanMember, quota: ByteQuota
    ) -> None:
        """`open_`: the constants that distinguish the members of the group. The SPU starts with `begin`."""
        super().__init__(quota)
        self.query = query
        self.group = group
        self.open = open_
        self._stages: Sequence[Stage] = ()
        self._stateful: Sequence[Stage] = ()
        """Stages with state."""
        self._follow(self.stages())
        self.begun = False
        """Whether the stages hold the result. Until then, the deferred results collect changed solutions."""
        self.ended = False
        self.deferred_results: list[DeferredFirstResult] = []
        """First results in progress for new subscribers."""
        retain(world.graph.dictionary, open_)

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.group.plan.variables

    def delta(self, world: World, changed: Weights) -> Delta:
        """Convert changed rows to terms."""
        terms = world.graph.dictionary.terms
        term = terms.__getitem__
        added: list[TermRow] = []
        removed: list[TermRow] = []
        for row, count in changed.items():
            # `map` runs in C, but cannot skip unbound cells.
            cells = tuple([None if cell is None else terms[cell] for cell in row] if None in row else map(term, row))  # type: ignore[arg-type]
            if count > 0:
                added += (cells,) * count
            else:
                removed += (cells,) * -count
        return Delta(self.group.plan.variables, tuple(added), tuple(removed))

    def stages(self) -> Sequence[Stage]:
        """Return new stages."""
        return self.group.plan.stages(self.group.frame(0, self.open))

    def begin(self, world: World, steps: int | None = None) -> Weights:
        """Evaluate the query within a step budget. Return the whole result. Raises `ResultTooLarge`."""
        result = self._whole(self._stages, world, steps)
        self.begun = True
        return result

    def begin_outside(self, pending: PendingSubscriber) -> DeferredFirstResult:
        """Start to collect changes while another process evaluates the query in the current state."""
        deferred = DeferredFirstResult(self.group, self.open, self.stages(), pending)
        self.deferred_results.append(deferred)
        return deferred

    def begun_outside(self, world: World, deferred: DeferredFirstResult) -> None:
        """Note that a deferred result is that of the current state."""
        if self.begun:
            self.abandon(world, deferred)
            return
        self._release_stages()
        self._follow(deferred.stages)
        self.begun = True
        self.deferred_results.remove(deferred)
        deferred.end(world)

    def abandon(self, world: World, deferred: DeferredFirstResult) -> None:
        """Discard a deferred result and its changes."""
        self.deferred_results.remove(deferred)
        deferred.end(world)
        for stage in deferred.stages:
            stage.release()

    def _follow(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._stateful = [stage for stage in stages if not isinstance(stage, Columns)]

    def _release_stages(self) -> None:
        for stage in self._stages:
            stage.release()

    def result(self, world: World, steps: int | None = None) -> Weights:
        """Return the whole current result, for a new subscriber. Raises `EdgeError`."""
        stages = self.stages()
        try:
            return self._whole(stages, world, steps)
        finally:
            for stage in stages:
                stage.release()

    def _whole(self, stages: Sequence[Stage], world: World, steps: int | None) -> Weights:
        solutions = every_solution(self.group, self.open, world.rules, steps)
        if world.graph.dictionary.long:
            self._check_reading(solutions)
        rows = flow(stages, solutions, start=True)
        if world.graph.dictionary.long:
            _check_length(rows, world)
        return rows

    def move(self, world: World, weights: Weights) -> Weights:
        """Apply changed solutions, all or none. Return the changed rows.

        The limits of the evaluation are suspended, so an aggregate cannot stop half-way; the first violated limit is
        checked afterwards. Raises `ResultTooLarge`, `TooManyRequests`.
        """
        long, budget = world.graph.dictionary.long, world.graph.budget
        if long:
            self._check_reading(weights)
        budget.refusal = None
        changed = self.take(world, weights)
        try:
            if budget.refusal is not None:
                raise budget.refusal
            if self._stateful and any(stage.size() > world.rules.max_solutions for stage in self._stateful):
                raise too_many(world.rules)
            if long:
                _check_length(changed, world)
            if self._stateful:
                self.account()
        except (ResultTooLarge, TooManyRequests):
            # The rules are linear: the same solutions with the opposite sign restore the state.
            self.take(world, weights.inverse)
            self.half_moved = False
            raise
        return changed

    @property
    def held(self) -> int:
        """See `Spu`."""
        return sum([stage.held() for stage in self._stateful])

    def _check_reading(self, weights: Weights) -> None:
        """Check that aggregates can read all long texts of the solutions. Raises `ResultTooLarge`."""
        budget = self.group.budget
        reads = any(isinstance(stage, Groups) for stage in self._stages)
        if reads and budget.reading(long_texts(self.group.dictionary, weights)) > budget.most:
            raise budget.spent()

    def take(self, world: World, weights: Weights) -> Weights:
        """Apply changed solutions without a check of limits; also used to undo a change."""
        # Reset by the caller after success: an error in between leaves stages that cannot be used any more.
        self.half_moved = True
        for deferred in self.deferred_results:
            deferred.change(world, weights)
        return flow(self._stages, weights, start=False) if self.begun else Bag()

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return sum(stage.size() for stage in self._stages)

    def end(self, world: World) -> None:
        """See `Spu`."""
        self.ended = True
        self._release_stages()
        release(world.graph.dictionary, self.open)
        self.charge.release()


def _check_length(rows: Weights, world: World) -> None:
    """Check that rows can be held as text. Raises `ResultTooLarge`."""
    if long_texts(world.graph.dictionary, rows) > world.rules.longest_result:
        raise too_long(world.rules)
