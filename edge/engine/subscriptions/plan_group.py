"""Families: subscriptions of one plan that differ in constants only, and what a changed quad means to them.

A constant that stands in a triple pattern, or that a filter makes a variable equal to, can be left open: the patterns
are then evaluated once for the whole family, with what the quad decides, and each solution says whose it is. A
thousand lamps, or roads, cost one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from edge.engine.operators.compiler import Plan, Trigger
from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import same_term
from edge.engine.operators.stages import Row, Weights, add_weight, release, retain, row_bytes
from edge.engine.queries.incremental_plan import QueryPlan
from edge.engine.queries.lutt import Key
from edge.engine.queries.oxigraph_queries import QueryRules, bounded, too_many
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import Dictionary

if TYPE_CHECKING:
    from edge.engine.subscriptions.spu import IncrementalSpu

Restriction = tuple[tuple[int, int], ...]
"""Places of the frame and what is bound there."""

Found = dict[Row, int]
"""Solutions as whole frames, and how often each occurs."""


Solutions = list[tuple["IncrementalSpu", Frame]]
"""Solutions, and whose they are."""

MemoKey = tuple["IncrementalSpu | None", tuple[int, ...]]
"""A member (None: the whole family), and what a quad fixed of that which others look at."""

Memo = dict[MemoKey, Solutions]


class MemoLimit:
    """Limit of the bytes that all triggers of an engine remember: evaluations, and the solutions that these gave.

    They are bytes of the engine, not of a client: each counts with its long terms, which may be in no graph any more.
    """

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class GroupTrigger:
    """A trigger of a family's plan: what stands in the LUTT."""

    __slots__ = (
        *("_memo", "complete", "connected", "deciding", "family", "number", "others", "own", "own_places", "plan"),
        *("_held", "shared", "shared_places", "simple", "trigger"),
    )

    def __init__(self, family: PlanGroup, number: int, trigger: Trigger) -> None:
        """`number`: of the plan among the alternatives."""
        plan = family.plan.alternatives[number]
        self.family = family
        self.plan = plan
        self.number = number
        self.trigger = trigger
        decided = [plan.shown[place] for place in family.open if plan.shown[place] in trigger.fixes]
        self.deciding = _picker([trigger.fixes.index(place) for place in decided])
        """The open constants that a matching quad decides."""
        self.complete = len(decided) == len(family.open)
        """Whether these are all of them."""
        self.connected = _connected(plan, trigger)
        """Whether every pattern is joined to this one, so that it is worth leaving the other constants open."""
        fixed = {place: position for position, place in enumerate(trigger.fixes) if place is not None}
        self.own_places = [place for place in fixed if place in trigger.own]
        self.own = _picker([fixed[place] for place in self.own_places])
        """Of a matching quad, what stands in places that nothing else looks at."""
        self.shared_places = [place for place in fixed if place not in trigger.own]
        self.shared = _picker([fixed[place] for place in self.shared_places])
        """Of a matching quad, what stands in other places."""
        positions = [place for place in trigger.fixes if place is not None]
        self.simple = len(positions) == len(set(positions)) and trigger.fixes[3] is None
        """Whether a quad with the constants of the pattern matches it."""
        self.others: tuple[GroupTrigger, ...] = ()
        """The other triggers of the plan."""
        self._memo: Memo = {}
        self._held = 0
        """Bytes of the memo."""

    @property
    def direct(self) -> bool:
        """Whether the pattern is the whole plan: a changed quad is a changed solution."""
        return self.plan.operator is self.trigger.scan

    def recall(self, key: MemoKey) -> Solutions | None:
        """What the rest of the plan gave when it was last evaluated for this; None: not known."""
        return self._memo.get(key)

    def remember(self, key: MemoKey, found: Solutions) -> None:
        """Keep what the rest of the plan gives, until something in it changes. Readings change, what has them stays."""
        if not self.trigger.steady:
            return
        memory, dictionary = self.family.memory, self.family.dictionary
        size = row_bytes(dictionary, key[1]) + sum([row_bytes(dictionary, row) for _, row in found])
        if size > memory.most:
            return
        if memory.held + size > memory.most:
            self.forget()
            if memory.held + size > memory.most:
                return
        memory.held += size
        self._held += size
        self._memo[key] = found
        for term_ids in (key[1], *(row for _, row in found)):
            retain(dictionary, term_ids)

    def forget(self) -> None:
        """Let go of all that is remembered."""
        memo, self._memo = self._memo, {}
        self.family.memory.held -= self._held
        self._held = 0
        for (_, values), found in memo.items():
            for term_ids in (values, *(row for _, row in found)):
                release(self.family.dictionary, term_ids)

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


class PlanGroup:
    """The subscriptions of one plan, and of equal constants where they cannot be left open."""

    def __init__(self, plan: QueryPlan, graph: LiveGraph, closed: Row, memory: MemoLimit) -> None:
        """`closed`: the term ids of the parameters in the layout's order, None for those that are open."""
        self.plan = plan
        self.memory = memory
        self.closed = closed
        self.open = open_places(plan)
        self.members: dict[Row, IncrementalSpu] = {}
        self.fault_logged = False
        """Whether it was logged that the members cannot be evaluated together."""
        self._graph = graph
        self._base = plan.layout.frame(graph, closed)
        for place in self.open:
            self._base[place] = None
        retain(graph.dictionary, tuple(self._base))
        self._shown = [[each.shown[place] for place in self.open] for each in plan.alternatives]
        self.triggers: tuple[GroupTrigger, ...] = tuple(
            GroupTrigger(self, number, trigger)
            for number, each in enumerate(plan.alternatives)
            for trigger in each.triggers
        )
        for entry in self.triggers:
            entry.others = tuple(each for each in self.triggers if each.number == entry.number and each is not entry)

    @property
    def dictionary(self) -> Dictionary:
        """Where the ids have their terms."""
        return self._graph.dictionary

    @property
    def effort(self) -> StepBudget:
        """Of the evaluation that runs."""
        return self._graph.effort

    def forget(self) -> None:
        """Let go of all that the triggers remember: the members are others, or the graph is not what it was."""
        for trigger in self.triggers:
            trigger.forget()

    def release(self) -> None:
        """Let go of the constants, and of what refers back to it. Nobody is a member any more."""
        release(self._graph.dictionary, tuple(self._base))
        for trigger in self.triggers:
            trigger.others = ()
        self.triggers = ()  # a reference cycle would stay until all objects are searched for garbage

    def open_frame(self) -> Frame:
        """The frame with which the patterns are evaluated for all members at once."""
        return self._base.copy()

    def whose(self, number: int, solution: Sequence[int | None]) -> IncrementalSpu | None:
        """The member that a solution of the patterns, with constants left open, belongs to."""
        return self.members.get(tuple([solution[place] for place in self._shown[number]]))

    def row(self, member: IncrementalSpu, solution: Frame) -> Frame:
        """A solution as the member has it, with its constants."""
        row = solution.copy()
        for place, term_id in zip(self.open, member.open, strict=True):
            row[place] = term_id
        return row

    def keys(self, open_: Row) -> Iterator[tuple[Key, GroupTrigger]]:
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


def solutions(plan: Plan, frame: Frame, restrictions: Iterable[Restriction], rules: QueryRules) -> Found:
    """The solutions of a pattern that agree with any of the restrictions, each with its multiplicity.

    Raises `ResultTooLarge`.
    """
    found: Found = {}
    start = frame.copy()
    for restriction in restrictions:
        start[:] = frame
        for place, term_id in restriction:
            start[place] = term_id
        part: Found = {}
        for _ in bounded(plan.operator.solutions(start), rules):
            row = tuple(start)
            part[row] = part.get(row, 0) + 1
        found.update(part)
        if len(found) > rules.max_solutions:
            raise too_many(rules)
    return found


def every_solution(family: PlanGroup, open_: Row, rules: QueryRules, steps: int | None = None) -> Weights:
    """All solutions of a member's patterns. `steps` to find them; None: as many as allowed. Raises `ResultTooLarge`."""
    weights: Weights = {}
    family.effort.begin(steps)
    for number, plan in enumerate(family.plan.alternatives):
        frame = family.frame(number, open_)
        for row, count in solutions(plan, frame, ((),), rules).items():
            add_weight(weights, row, count)
    return weights


def _picker(positions: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What picks these positions of a quad as a tuple, at the speed of C if there are several."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if positions:
        (position,) = positions
        return lambda quad: (quad[position],)
    return lambda quad: ()
