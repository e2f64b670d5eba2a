"""Families: subscriptions of one plan that differ in constants only, and what a changed quad means to them.

A constant that stands in a triple pattern, or that a filter makes a variable equal to, can be left open: the patterns
are then evaluated once for the whole family, with what the quad decides, and each solution says whose it is. A
thousand lamps, or roads, cost one evaluation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edge.engine.booster import QueryPlan
from edge.engine.general import Rules, bounded
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.engine.lutt import Key
from edge.engine.operators.compiler import Plan, Trigger
from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import same_term
from edge.engine.operators.stages import Row, Weights, add_weight, release, retain

if TYPE_CHECKING:
    from edge.engine.spu import BoostedSpu

Restriction = tuple[tuple[int, int], ...]
"""Places of the frame and what is bound there."""

Found = dict[Row, int]
"""Solutions as whole frames, and how often each occurs."""


@dataclass(eq=False, slots=True)
class FamilyTrigger:
    """A trigger of a family's plan: what stands in the LUTT."""

    family: Family
    plan: Plan
    number: int
    """Of the plan among the alternatives."""
    trigger: Trigger
    decided: tuple[tuple[int, int], ...]
    """Which of the open constants a matching quad decides: their number, and the quad's position."""
    connected: bool
    """Whether every pattern is joined to this one, so that it is worth leaving the other constants open."""

    def targets(self, quad: Quad) -> Iterable[BoostedSpu | Family]:
        """Who is to be evaluated for a quad that matches: members, or the family as a whole."""
        family = self.family
        if len(self.decided) == len(family.open):
            member = family.members.get(tuple([quad[position] for _, position in self.decided]))
            return () if member is None else (member,)
        return (family,) if self.connected and len(family.members) > 1 else list(family.members.values())

    def restriction(self, frame: Frame, quad: Quad) -> Restriction | None:
        """What a quad fixes if it matches the pattern with the constants of a frame, else None."""
        places = self.trigger.places
        seen: dict[int, int] = {}
        fixed: dict[int, int] = {}
        for position, fix in enumerate(self.trigger.fixes):
            place, term_id = places[position], quad[position]
            constant = frame[place]
            if constant is None:
                constant = seen.setdefault(place, term_id)
            if constant != term_id:
                return None
            if fix is not None:
                known = frame[fix]
                if known is None:
                    known = fixed.setdefault(fix, term_id)
                if known != term_id:
                    return None
        if quad[3] == DEFAULT_GRAPH and frame[places[3]] is None:
            return None
        return tuple(sorted(fixed.items()))


class Family:
    """The subscriptions of one plan, and of equal constants where they cannot be left open."""

    def __init__(self, plan: QueryPlan, graph: LiveGraph, closed: Row) -> None:
        """`closed`: the term ids of the parameters in the layout's order, None for those that are open."""
        self.plan = plan
        self.closed = closed
        self.open = open_places(plan)
        self.members: dict[Row, BoostedSpu] = {}
        self._graph = graph
        self._base = plan.layout.frame(graph, closed)
        for place in self.open:
            self._base[place] = None
        retain(graph.dictionary, tuple(self._base))
        self.triggers = tuple(self._triggers())

    def release(self) -> None:
        """Let go of the constants. Nobody is a member any more."""
        release(self._graph.dictionary, tuple(self._base))

    def open_frame(self) -> Frame:
        """The frame with which the patterns are evaluated for all members at once."""
        return self._base.copy()

    def whose(self, number: int, row: Row) -> tuple[BoostedSpu, Row] | None:
        """The member that a solution of the family's patterns belongs to, and the solution as the member has it."""
        shown = self.plan.alternatives[number].shown
        open_ = tuple([row[shown[place]] for place in self.open])
        member = self.members.get(open_)
        if member is None:
            return None
        whole = list(row)
        for place, term_id in zip(self.open, open_, strict=True):
            whole[place] = term_id
        return member, tuple(whole)

    def keys(self, open_: Row) -> Iterator[tuple[Key, FamilyTrigger]]:
        """What a member is watched for: each trigger under the constants that stand in it."""
        frames = [self.frame(number, open_) for number in range(len(self.plan.alternatives))]
        for trigger in self.triggers:
            frame = frames[trigger.number]
            s, p, o, g = (frame[place] for place in trigger.trigger.places)
            yield (s, p, o, g), trigger

    def frame(self, number: int, open_: Row) -> Frame:
        """The frame with which an alternative is evaluated for a member."""
        frame = self._base.copy()
        for place, term_id in zip(self.open, open_, strict=True):
            frame[place] = term_id
        for variable, constant in self.plan.alternatives[number].fixed:
            value = frame[constant]
            if value is not None and frame[variable] is None and same_term(self._graph, value):
                frame[variable] = value
        return frame

    def _triggers(self) -> Iterator[FamilyTrigger]:
        for number, plan in enumerate(self.plan.alternatives):
            for trigger in plan.triggers:
                decided = []
                for index, place in enumerate(self.open):
                    shown = plan.shown[place]
                    if shown in trigger.fixes:
                        decided.append((index, trigger.fixes.index(shown)))
                yield FamilyTrigger(self, plan, number, trigger, tuple(decided), _connected(plan, trigger))


def open_places(plan: QueryPlan) -> tuple[int, ...]:
    """The places of the parameters that can be left open, in the layout's order."""
    return tuple(place for _, place in plan.layout.parameters if all(place in each.shown for each in plan.alternatives))


def _connected(plan: Plan, start: Trigger) -> bool:
    """Whether all triple patterns that every solution matches share variables with this one, directly or by others."""
    reached = {place for place in start.fixes if place is not None}
    left = [set(t.fixes) - {None} for t in plan.triggers if t.exact]
    while left:
        near = [places for places in left if places & reached]
        if not near:
            return False
        reached.update(*near)  # type: ignore[arg-type]
        left = [places for places in left if not places & reached]
    return True


@dataclass(slots=True)
class Job:
    """What of one alternative is to be evaluated for one member or family."""

    target: BoostedSpu | Family
    family: Family
    number: int
    frame: Frame
    hits: list[tuple[Trigger, Restriction, bool]] = field(default_factory=list)
    """Which triggers quads matched, what those fix, and whether they came or went."""
    everything: bool = False
    """Whether more can have changed than any quad can tell."""

    @property
    def plan(self) -> Plan:
        """What is to be evaluated."""
        return self.family.plan.alternatives[self.number]

    def sole_trigger(self) -> Trigger | None:
        """The only trigger that was hit, if each solution that it touches holds its quad.

        All other patterns match what they matched before: they need to be looked at in one state only.
        """
        first = self.hits[0][0] if self.hits else None
        if self.everything or first is None or not first.exact or any(hit[0] is not first for hit in self.hits):
            return None
        return first

    def difference(self, trigger: Trigger, rules: Rules) -> Iterator[tuple[Row, int]]:
        """The changed solutions, where `trigger` is the sole one. Raises `ResultTooLarge`.

        Quads that differ in nothing that the other patterns look at are evaluated together.
        """
        together: dict[Restriction, list[tuple[Restriction, int]]] = {}
        for _, restriction, present in self.hits:
            shared = tuple([pair for pair in restriction if pair[0] not in trigger.own])
            own = tuple([pair for pair in restriction if pair[0] in trigger.own])
            together.setdefault(shared, []).append((own, 1 if present else -1))
        trigger.scan.given = True
        try:
            for shared, changes in together.items():
                frame = _with(self.frame, shared)
                for _ in bounded(self.plan.operator.solutions(frame), rules):
                    for own, weight in changes:
                        yield tuple(_with(frame, own)), weight
        finally:
            trigger.scan.given = False

    def solutions(self, rules: Rules, *, present: bool) -> Found:
        """The solutions that can have changed, as they are (`present`) or were. Raises `ResultTooLarge`."""
        if self.everything:
            return solutions(self.plan, self.frame, ((),), rules)
        touched = dict.fromkeys(r for trigger, r, came in self.hits if came == present or not trigger.exact)
        return solutions(self.plan, self.frame, ((),) if () in touched else touched, rules)

    def whose(self, row: Row) -> tuple[BoostedSpu, Row] | None:
        """The SPU that a solution belongs to, and the solution as that SPU has it."""
        if isinstance(self.target, Family):
            return self.family.whose(self.number, row)
        return self.target, row


def solutions(plan: Plan, frame: Frame, restrictions: Iterable[Restriction], rules: Rules) -> Found:
    """The solutions of a pattern that agree with any of the restrictions, each with its multiplicity."""
    found: Found = {}
    for restriction in restrictions:
        start = _with(frame, restriction)
        part: Found = {}
        for _ in bounded(plan.operator.solutions(start), rules):
            row = tuple(start)
            part[row] = part.get(row, 0) + 1
        found.update(part)
    return found


def every_solution(family: Family, open_: Row, rules: Rules) -> Weights:
    """All solutions of a member's patterns. Raises `ResultTooLarge`."""
    weights: Weights = {}
    for number, plan in enumerate(family.plan.alternatives):
        frame = family.frame(number, open_)
        for row, count in solutions(plan, frame, ((),), rules).items():
            add_weight(weights, row, count)
    return weights


def _with(frame: Frame, restriction: Restriction) -> Frame:
    bound = frame.copy()
    for place, term_id in restriction:
        bound[place] = term_id
    return bound
