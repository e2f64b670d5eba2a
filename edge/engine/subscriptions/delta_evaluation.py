"""Delta evaluation: the effect of one update on the subscriptions with incremental evaluation.

A changed quad takes the place of the pattern that it matches. If the update hits no other pattern of the plan, the
other patterns match the same quads as before. The engine evaluates them once on the current state, and the solutions
are added or removed together with the quad. Otherwise it evaluates the possibly changed solutions in the states after
and before the update, and compares them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edge.engine.operators.layout import Frame
from edge.engine.operators.plan import OptionalRightSide, Trigger
from edge.engine.operators.stages import Row, Weights
from edge.engine.queries.oxigraph_queries import QueryRules, bounded, too_many
from edge.engine.store.transaction import Transaction
from edge.engine.store.triple_index import Quad
from edge.engine.subscriptions.broad_changes import BROAD
from edge.engine.subscriptions.incremental_spu import IncrementalSpu
from edge.engine.subscriptions.plan_group import (
    Found,
    GroupTrigger,
    PlanGroup,
    Restriction,
    Solutions,
    reached,
    solutions,
)
from edge.protocol.bag import Bag
from edge.protocol.errors import ResultTooLarge

Changes = Sequence[tuple[Quad, bool]]
"""Changed quads, each with True if it was added and False if it was removed."""


_REACH_STEPS = 200
"""Steps to find the solutions that a quad affects; beyond them the whole plan is evaluated."""
_MOST_REACHED = 20
"""Restrictions that are evaluated one by one; with more, the whole plan is evaluated once."""


class DeltaEvaluation:
    """Changed solutions of an update, for each SPU."""

    def __init__(
        self,
        transaction: Transaction,
        rules: QueryRules,
        only: Mapping[Row, IncrementalSpu] | None = None,
        steps: int | None = None,
    ) -> None:
        """`only`: evaluate only for these members of one plan group, by their open constants, each by itself.

        `steps`: step budget of each subscription; None for the limit of an evaluation.
        """
        self._transaction = transaction
        self._steps = steps
        self._only = only
        self._rules = rules
        self.weights: dict[IncrementalSpu, Weights] = defaultdict(Bag)
        """Changed solutions of each SPU, with signed multiplicities."""
        self.failures: dict[IncrementalSpu, str] = {}
        """Reasons of the SPUs that could not be evaluated."""
        self._left: dict[IncrementalSpu | PlanGroup[IncrementalSpu], int] = {}
        """Remaining steps of each target in this update."""

    def run(self, hits: Mapping[GroupTrigger[IncrementalSpu], Changes], everything: Collection[IncrementalSpu]) -> None:
        """Evaluate. `hits`: the triggers that quads matched. `everything`: SPUs to evaluate as a whole."""
        plans: dict[tuple[PlanGroup[IncrementalSpu], int], list[GroupTrigger[IncrementalSpu]]] = {}
        for entry in hits:
            plans.setdefault((entry.group, entry.number), []).append(entry)
        # The cache of a trigger holds solutions of the other patterns, so a hit there invalidates it.
        for entries in plans.values():
            only = entries[0] if len(entries) == 1 else None
            for trigger in entries[0].alternative:
                if trigger is not only:
                    trigger.forget()
        if len(hits) == 1 and not everything:  # the usual case
            ((entry, changes),) = hits.items()
            if entry.trigger.exact:
                self._follow(entry, changes)
                return
        jobs: dict[tuple[object, int], _Job] = {}
        for spu in everything:
            spu.group.forget()
            for number in range(len(spu.group.plan.alternatives)):
                _job(jobs, spu, spu.group, number).everything = True
        for entries in plans.values():
            if len(entries) == 1 and entries[0].trigger.exact and not everything:
                self._follow(entries[0], hits[entries[0]])
            else:
                # A member of `everything` is evaluated as a whole already, so it must not be part of a group's job.
                together = not everything and self._only is None
                together = together and all(entry.connected and not entry.complete for entry in entries)
                for entry in entries:
                    self._restrict(jobs, entry, hits[entry], together=together)
        if jobs:
            self._compare(list(jobs.values()))

    def _members(self, group: PlanGroup[IncrementalSpu]) -> Mapping[Row, IncrementalSpu]:
        """Return the members of a plan group to evaluate, by their open constants."""
        return group.members if self._only is None else self._only

    # A single trigger, whose quads are part of each changed solution

    def _follow(self, entry: GroupTrigger[IncrementalSpu], changes: Changes) -> None:
        members = self._members(entry.group)
        if entry.complete and not entry.group.open:  # the only member
            for only in members.values():
                self._follow_member(entry, only, changes)
        elif entry.complete:
            theirs: dict[IncrementalSpu, list[tuple[Quad, bool]]] = {}
            for change in changes:
                member = members.get(entry.deciding(change[0]))
                if member is not None:
                    theirs.setdefault(member, []).append(change)
            for member, some in theirs.items():
                self._follow_member(entry, member, some)
        elif entry.connected and len(members) > 1 and entry.simple and self._only is None:
            try:
                self._extend(entry, None, changes)
            except ResultTooLarge:  # too large for all members together, but perhaps not for each of them
                for member in members.values():
                    self._follow_member(entry, member, changes)
        else:
            for member in members.values():
                self._follow_member(entry, member, changes)

    def _follow_member(self, entry: GroupTrigger[IncrementalSpu], member: IncrementalSpu, changes: Changes) -> None:
        if not (entry.simple and entry.complete):
            frame = entry.group.frame(entry.number, member.open)
            changes = [change for change in changes if entry.restriction(frame, change[0]) is not None]
        try:
            self._extend(entry, member, changes)
        except ResultTooLarge as error:
            self.failures[member] = error.description

    def _extend(self, entry: GroupTrigger[IncrementalSpu], member: IncrementalSpu | None, changes: Changes) -> None:
        """Find the solutions that contain the quads. Quads with the same values for other patterns share an evaluation.

        `member`: None evaluates for the whole group, and then assigns each solution to a member. Raises
        `ResultTooLarge`.
        """
        if entry.trigger.guards:
            changes = self._accepted(entry, member or entry.group, changes)
        together: dict[tuple[int, ...], list[tuple[Quad, bool]]] = {}
        for change in changes:
            together.setdefault(entry.shared(change[0]), []).append(change)
        start: Frame | None = None
        changed: list[tuple[IncrementalSpu, Frame, int]] = []
        most = self._rules.max_solutions
        for values, some in together.items():
            found = entry.recall((member, values))
            if found is None:
                if start is None:  # one frame for all quads, which bind the same positions
                    group = entry.group
                    start = group.open_frame() if member is None else group.frame(entry.number, member.open)
                found = self._solve(entry, member, values, start)
            if not found:
                continue
            # Checked before the rows are made: their number is a product.
            if len(changed) + len(found) * len(some) > most:
                raise too_many(self._rules)
            own = [(entry.own(quad), 1 if present else -1) for quad, present in some]
            for spu, solution in found:
                for values_, weight in own:
                    row = solution.copy()
                    for place, term_id in zip(entry.own_places, values_, strict=True):
                        row[place] = term_id
                    changed.append((spu, row, weight))
        for spu, row, weight in changed:
            self.weights[spu].add(tuple(row), weight)

    def _accepted(
        self,
        entry: GroupTrigger[IncrementalSpu],
        target: IncrementalSpu | PlanGroup[IncrementalSpu],
        changes: Changes,
    ) -> Changes:
        """Return the changes that satisfy the filters on their pattern. Raises `ResultTooLarge`."""
        budget = entry.group.budget
        budget.left = self._left_for(target)
        try:
            return [change for change in changes if entry.accepts(change[0])]
        finally:
            self._left[target] = budget.left

    def _solve(
        self, entry: GroupTrigger[IncrementalSpu], member: IncrementalSpu | None, values: tuple[int, ...], start: Frame
    ) -> Solutions[IncrementalSpu]:
        """Return the solutions of the rest of a plan, computed in the frame `start`. Raises `ResultTooLarge`."""
        group = entry.group
        for place, term_id in zip(entry.shared_places, values, strict=True):
            start[place] = term_id
        if entry.direct and member is not None:
            return [(member, start)]
        found: Solutions[IncrementalSpu] = []
        target = member or group
        budget = group.budget
        budget.left = self._left_for(target)
        entry.trigger.scan.given = True  # the scan yields once, for the quad that is already bound
        try:
            for _ in bounded(entry.plan.operator.solutions(start), self._rules):
                spu = group.whose(entry.number, start) if member is None else member
                if spu is not None:
                    found.append((spu, group.row(spu, start)))
        finally:
            entry.trigger.scan.given = False
            self._left[target] = budget.left
        entry.remember((member, values), found)
        return found

    def _left_for(self, target: IncrementalSpu | PlanGroup[IncrementalSpu]) -> int:
        """Return the remaining steps of a subscription, or of a plan group, which has the budget of its members."""
        left = self._left.get(target)
        if left is not None:
            return left
        group = target if isinstance(target, PlanGroup) else target.group
        if self._steps is None:
            return group.budget.most
        return min(group.budget.most, self._steps * (len(group.members) if target is group else 1))

    # All other cases

    def _compare(self, jobs: Sequence[_Job]) -> None:
        """Evaluate the possibly changed solutions in the states after and before the update."""
        # A quad leads to the solutions that it affects in the state that has it.
        self._reach(jobs, present=True)
        for job in jobs:
            if len(job.hits) >= BROAD and not job.everything:
                self._try_whole(job)
        # The graph is in the new state already, so one reversal is enough.
        with self._transaction.reverted():
            self._reach(jobs, present=False)
            old = self._evaluated(jobs, present=False)
        new = self._evaluated(jobs, present=True)
        separate: dict[tuple[object, int], _Job] = {}
        for job, before, after in zip(jobs, old, new, strict=True):
            if not isinstance(before, ResultTooLarge) and not isinstance(after, ResultTooLarge):
                self._add(job, after, 1)
                self._add(job, before, -1)
                if job.is_repeated:
                    job.group.broad[job.number].needed(job.steps)
            elif isinstance(job.target, PlanGroup):
                _divide(job, separate)  # too large for all members together, but perhaps not for each of them
            elif not job.everything:
                # The hits may be many, and the solutions few.
                whole = _job(separate, job.target, job.group, job.number)
                whole.everything = whole.is_repeated = True
            else:
                error = after if isinstance(after, ResultTooLarge) else before
                assert isinstance(error, ResultTooLarge)  # noqa: S101
                self.failures[job.target] = error.description
        if separate:
            self._compare(list(separate.values()))

    def _try_whole(self, job: _Job) -> None:
        """Evaluate all solutions of a broad change in the state after the update, if this takes few steps."""
        broad = job.group.broad[job.number]
        job.attempt = min(broad.steps(len(job.hits)), self._left_for(job.target))
        if job.attempt:
            job.group.budget.left = job.attempt
            job.whole = job.all_solutions(self._rules)
            if job.whole is None:
                broad.tried(success=False)

    def _old_whole(self, job: _Job) -> Found | None:
        """Evaluate all solutions in the state before the update. None: the restricted ones have to be evaluated."""
        job.group.budget.left = job.attempt
        found = job.all_solutions(self._rules)
        job.group.broad[job.number].tried(success=found is not None)
        if found is None:
            job.whole = None
        return found

    def _restrict(
        self,
        jobs: dict[tuple[object, int], _Job],
        entry: GroupTrigger[IncrementalSpu],
        changes: Changes,
        *,
        together: bool,
    ) -> None:
        """Record the restrictions of quads. `together`: for the plan group as a whole, else for each member."""
        group, members = entry.group, self._members(entry.group)
        for change in changes:
            targets: Iterable[IncrementalSpu | PlanGroup[IncrementalSpu]]
            if together and len(members) > 1:
                targets = (group,)
            elif entry.complete:
                member = members.get(entry.deciding(change[0]))
                targets = () if member is None else (member,)
            else:
                targets = members.values()
            for target in targets:
                job = _job(jobs, target, group, entry.number)
                if (reach := entry.trigger.reach) is not None:
                    job.quads.append((entry.trigger, reach, *change))
                    continue
                restriction = entry.restriction(job.frame, change[0])
                if restriction is not None:
                    job.hits.append((entry.trigger, restriction, change[1]))

    def _reach(self, jobs: Sequence[_Job], *, present: bool) -> None:
        for job in jobs:
            if job.quads:
                # Few steps, which `_evaluated` need not count.
                job.group.budget.left = min(_REACH_STEPS, self._left_for(job.target))
                job.reach(self._rules, present=present)

    def _evaluated(self, jobs: Sequence[_Job], *, present: bool) -> list[Found | ResultTooLarge]:
        # Each of the two states has the full budget.
        self._left.clear()
        found: list[Found | ResultTooLarge] = []
        for job in jobs:
            budget = job.group.budget
            whole = job.whole
            if whole is not None and not present:
                whole = self._old_whole(job)
            if whole is not None:
                found.append(whole)
                continue
            budget.left = left = self._left_for(job.target)
            found.append(job.solutions(self._rules, present=present))
            self._left[job.target] = budget.left
            job.steps = max(job.steps, left - budget.left)
        return found

    def _add(self, job: _Job, found: Found, sign: int) -> None:
        for row, count in found.items():
            if isinstance(job.target, PlanGroup):
                spu = job.group.whose(job.number, row)
                if spu is not None:
                    whole = tuple(job.group.row(spu, list(row)))
                    self.weights[spu].add(whole, sign * count)
            else:
                self.weights[job.target].add(row, sign * count)


@dataclass(slots=True)
class _Job:
    """Evaluation of one alternative for one member or plan group."""

    target: IncrementalSpu | PlanGroup[IncrementalSpu]
    group: PlanGroup[IncrementalSpu]
    number: int
    frame: Frame
    hits: list[tuple[Trigger, Restriction, bool]] = field(default_factory=list)
    """Triggers that quads matched, their bindings, and whether the quads were added."""
    quads: list[tuple[Trigger, OptionalRightSide, Quad, bool]] = field(default_factory=list)
    """Triggers with their `reach`, the quads that they matched, and whether the quads were added."""
    reached: dict[Restriction, None] = field(default_factory=dict)
    """The restrictions to which the quads lead; the empty one if these are too many."""
    everything: bool = False
    """Whether any solution may have changed."""
    is_repeated: bool = False
    """Whether the restricted evaluations took too many steps."""
    steps: int = 0
    """Steps of the evaluation of one state."""
    attempt: int = 0
    """Steps for an evaluation of all solutions in each state (see `BroadChanges`)."""
    whole: Found | None = None
    """All solutions in the state after the update, if these were found in an attempt."""

    def reach(self, rules: QueryRules, *, present: bool) -> None:
        """Find the restrictions of the quads in the current state. `present`: it is the state after the update."""
        try:
            for trigger, reach, quad, came in self.quads:
                if came == present and not self.everything:
                    self.reached.update(dict.fromkeys(reached(trigger, reach, self.frame, quad, rules)))
        except ResultTooLarge:
            # A popular quad: the left side may have fewer solutions, and the whole plan begins with the smaller side.
            self.reached[()] = None
        if len(self.reached) > _MOST_REACHED:
            self.reached[()] = None

    def all_solutions(self, rules: QueryRules) -> Found | None:
        """Return all solutions in the current state; None if a limit stops the evaluation."""
        try:
            return solutions(self.group.plan.alternatives[self.number], self.frame, ((),), rules)
        except ResultTooLarge:
            return None

    def solutions(self, rules: QueryRules, *, present: bool) -> Found | ResultTooLarge:
        """Return the possibly changed solutions in the current state. `present`: it is the state after the update.

        Returns the error if a limit stops the evaluation.
        """
        touched: dict[Restriction, None] = {}
        if self.everything:
            touched[()] = None
        else:
            touched.update(dict.fromkeys(r for trigger, r, came in self.hits if came == present or not trigger.exact))
            touched.update(self.reached)
        try:
            plan = self.group.plan.alternatives[self.number]
            return solutions(plan, self.frame, ((),) if () in touched else touched, rules)
        except ResultTooLarge as error:
            return error


def _job(
    jobs: dict[tuple[object, int], _Job],
    target: IncrementalSpu | PlanGroup[IncrementalSpu],
    group: PlanGroup[IncrementalSpu],
    number: int,
) -> _Job:
    key = (target, number)
    job = jobs.get(key)
    if job is None:
        frame = group.open_frame() if isinstance(target, PlanGroup) else group.frame(number, target.open)
        job = jobs[key] = _Job(target, group, number, frame)
    return job


def _divide(job: _Job, jobs: dict[tuple[object, int], _Job]) -> None:
    """Split a job for a plan group into jobs for its members."""
    for member in job.group.members.values():
        part = _job(jobs, member, job.group, job.number)
        part.everything = job.everything
        part.quads = job.quads
        part.hits = [hit for hit in job.hits if all(part.frame[p] in (None, term_id) for p, term_id in hit[1])]
