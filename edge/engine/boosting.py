"""Boosting: what one update means to the subscriptions that the delta rules serve.

A changed quad stands for the pattern that it matches. Where no other pattern of the plan was hit, all else matches what
it matched before: it is evaluated once, on the state as it is, and the solutions come or go with the quad. Otherwise
the solutions that can have changed are evaluated in the state after the update and in the one before, and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edge.engine.family import Family, FamilyTrigger, Found, Restriction, solutions
from edge.engine.general import Rules, too_many
from edge.engine.graph import Quad
from edge.engine.operators.compiler import Trigger
from edge.engine.operators.layout import Frame
from edge.engine.operators.stages import Weights, add_weight
from edge.engine.spu import BoostedSpu
from edge.engine.update import Transaction
from edge.protocol.errors import ResultTooLarge

Changes = Sequence[tuple[Quad, bool]]
"""Changed quads, and whether each came (True) or went."""


class Boosting:
    """The solutions that an update changes, by SPU."""

    def __init__(self, transaction: Transaction, rules: Rules) -> None:
        self._transaction = transaction
        self._rules = rules
        self.weights: dict[BoostedSpu, Weights] = {}
        """What each SPU has to take in."""
        self.failures: dict[BoostedSpu, str] = {}
        """Why some could not be evaluated."""

    def run(self, hits: Mapping[FamilyTrigger, Changes], everything: Iterable[BoostedSpu]) -> None:
        """`hits`: the triggers that quads matched. `everything`: who is to look at everything again."""
        others: dict[tuple[Family, int], list[FamilyTrigger]] = {}
        for entry in hits:
            others.setdefault((entry.family, entry.number), []).append(entry)
        jobs: dict[tuple[object, int], _Job] = {}
        whole = list(everything)
        for spu in whole:
            for number in range(len(spu.family.plan.alternatives)):
                _job(jobs, spu, spu.family, number).everything = True
        for entries in others.values():
            first = entries[0]
            if len(entries) == 1 and first.trigger.exact and not whole:
                self._follow(first, hits[first])
            else:
                for entry in entries:
                    _restrict(jobs, entry, hits[entry])
        if jobs:
            self._compare(list(jobs.values()))
        for spu in self.failures:
            self.weights.pop(spu, None)

    # One trigger alone, whose quads are in each solution that changes

    def _follow(self, entry: FamilyTrigger, changes: Changes) -> None:
        family = entry.family
        if entry.complete:
            for change in changes:
                member = family.members.get(entry.deciding(change[0]))
                if member is not None:
                    self._follow_member(entry, member, (change,))
        elif entry.connected and len(family.members) > 1 and entry.simple:
            try:
                self._extend(entry, family.open_frame(), None, changes)
            except ResultTooLarge:  # for all together, but perhaps not for each
                for member in family.members.values():
                    self._follow_member(entry, member, changes)
        else:
            for member in family.members.values():
                self._follow_member(entry, member, changes)

    def _follow_member(self, entry: FamilyTrigger, member: BoostedSpu, changes: Changes) -> None:
        frame = entry.family.frame(entry.number, member.open)
        if not (entry.simple and entry.complete):
            changes = [change for change in changes if entry.restriction(frame, change[0]) is not None]
        try:
            self._extend(entry, frame, member, changes)
        except ResultTooLarge:
            self.failures[member] = too_many(self._rules).description

    def _extend(self, entry: FamilyTrigger, frame: Frame, member: BoostedSpu | None, changes: Changes) -> None:
        """Find the solutions that hold the quads. Those that differ in nothing else look at share one evaluation.

        `member` None: the family's, each of which says whose it is. Raises `ResultTooLarge`.
        """
        together: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
        for quad, present in changes:
            together.setdefault(entry.shared(quad), []).append((entry.own(quad), 1 if present else -1))
        operator, family, number = entry.plan.operator, entry.family, entry.number
        found: list[tuple[BoostedSpu, Frame, int]] = []
        left = self._rules.max_solutions
        entry.trigger.scan.given = True
        try:
            for values, own in together.items():
                start = frame.copy()
                for place, term_id in zip(entry.shared_places, values, strict=True):
                    start[place] = term_id
                for _ in operator.solutions(start):
                    spu = family.whose(number, start) if member is None else member
                    if spu is None:
                        continue
                    left -= len(own)
                    if left < 0:
                        raise too_many(self._rules)
                    for some, weight in own:
                        row = family.row(spu, start)
                        for place, term_id in zip(entry.own_places, some, strict=True):
                            row[place] = term_id
                        found.append((spu, row, weight))
        finally:
            entry.trigger.scan.given = False
        for spu, row, weight in found:
            add_weight(self.weights.setdefault(spu, {}), tuple(row), weight)

    # Anything else

    def _compare(self, jobs: Sequence[_Job]) -> None:
        """Evaluate what can have changed in the state after the update and in the one before."""
        new = [job.solutions(self._rules, present=True) for job in jobs]
        with self._transaction.reverted():
            old = [job.solutions(self._rules, present=False) for job in jobs]
        apart: dict[tuple[object, int], _Job] = {}
        for job, before, after in zip(jobs, old, new, strict=True):
            if before is not None and after is not None:
                self._add(job, after, 1)
                self._add(job, before, -1)
            elif isinstance(job.target, Family):
                _divide(job, apart)  # too many solutions for all together, but perhaps not for each
            else:
                self.failures[job.target] = too_many(self._rules).description
        if apart:
            self._compare(list(apart.values()))

    def _add(self, job: _Job, found: Found, sign: int) -> None:
        for row, count in found.items():
            if isinstance(job.target, Family):
                spu = job.family.whose(job.number, row)
                if spu is not None:
                    whole = tuple(job.family.row(spu, list(row)))
                    add_weight(self.weights.setdefault(spu, {}), whole, sign * count)
            else:
                add_weight(self.weights.setdefault(job.target, {}), row, sign * count)


@dataclass(slots=True)
class _Job:
    """What of one alternative is to be evaluated for one member or family."""

    target: BoostedSpu | Family
    family: Family
    number: int
    frame: Frame
    hits: list[tuple[Trigger, Restriction, bool]] = field(default_factory=list)
    """Which triggers quads matched, what those fix, and whether they came or went."""
    everything: bool = False
    """Whether more can have changed than any quad can tell."""

    def solutions(self, rules: Rules, *, present: bool) -> Found | None:
        """The solutions that can have changed, as they are (`present`) or were. None: too many."""
        touched: dict[Restriction, None] = {}
        if self.everything:
            touched[()] = None
        else:
            touched.update(dict.fromkeys(r for trigger, r, came in self.hits if came == present or not trigger.exact))
        try:
            plan = self.family.plan.alternatives[self.number]
            return solutions(plan, self.frame, ((),) if () in touched else touched, rules)
        except ResultTooLarge:
            return None


def _restrict(jobs: dict[tuple[object, int], _Job], entry: FamilyTrigger, changes: Changes) -> None:
    for quad, present in changes:
        for target in entry.targets(quad):
            job = _job(jobs, target, entry.family, entry.number)
            restriction = entry.restriction(job.frame, quad)
            if restriction is not None:
                job.hits.append((entry.trigger, restriction, present))


def _job(jobs: dict[tuple[object, int], _Job], target: BoostedSpu | Family, family: Family, number: int) -> _Job:
    key = (target, number)
    job = jobs.get(key)
    if job is None:
        frame = family.open_frame() if isinstance(target, Family) else family.frame(number, target.open)
        job = jobs[key] = _Job(target, family, number, frame)
    return job


def _divide(job: _Job, jobs: dict[tuple[object, int], _Job]) -> None:
    """The same for each member of the family."""
    for member in job.family.members.values():
        part = _job(jobs, member, job.family, job.number)
        part.everything = job.everything
        part.hits = [hit for hit in job.hits if all(part.frame[p] in (None, term_id) for p, term_id in hit[1])]
