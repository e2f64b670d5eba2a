"""Plan groups: subscriptions with one plan that differ only in constants, and the effect of a changed quad on them.

A constant in a triple pattern, or in a filter that compares it with a variable, can stay open. The engine then
evaluates the patterns once for the whole group, with the values from the quad, and finds the member of each solution.
So a change costs one evaluation for a thousand subscriptions to different lamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Generic, Protocol, TypeVar

from edge.engine.operators.layout import Frame
from edge.engine.operators.plan import OptionalRightSide, Plan, Trigger
from edge.engine.operators.row_operators import same_term
from edge.engine.operators.stages import Row, Weights, release, retain, row_bytes
from edge.engine.queries.incremental_plan import QueryPlan
from edge.engine.queries.oxigraph_queries import QueryRules, bounded, too_many
from edge.engine.queries.subscription_index import Key
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.step_budget import StepBudget
from edge.engine.store.terms import Dictionary
from edge.engine.store.triple_index import Quad
from edge.engine.subscriptions.broad_changes import BroadChanges
from edge.protocol.bag import Bag

Restriction = tuple[tuple[int, int], ...]
"""Frame positions, with the ids bound there."""

Found = Bag[Row]
"""Solutions as whole frames, with their multiplicities."""


class GroupMember(Protocol):
    """Interface of a member for its plan group."""

    @property
    def open(self) -> Row:
        """The constants that distinguish the members of the group."""


M = TypeVar("M", bound=GroupMember)

Solutions = list[tuple[M, Frame]]
"""Solutions with their members."""

MemoKey = tuple[M | None, tuple[int, ...]]
"""A member (None for the whole group), and the values of a quad that other patterns use."""

Memo = dict[MemoKey[M], Solutions[M]]


class MemoLimit:
    """Size limit of the caches of all triggers: join results and their solutions.

    The bytes count for the engine, not for a client. Long terms count in full, because a term may be in no graph any
    more.
    """

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0


class GroupTrigger(Generic[M]):
    """A trigger of a group's plan, as an entry of the LUTT."""

    __slots__ = (
        *("_memo", "alternative", "complete", "connected", "deciding", "group", "number", "own", "own_places", "plan"),
        *("_fixed", "_held", "_tested", "shared", "shared_places", "simple", "trigger"),
    )

    def __init__(self, group: PlanGroup[M], number: int, trigger: Trigger) -> None:
        """`number`: index of the plan among the alternatives."""
        plan = group.plan.alternatives[number]
        self.group = group
        self.plan = plan
        self.number = number
        self.trigger = trigger
        decided = [plan.shown[place] for place in group.open if plan.shown[place] in trigger.fixes]
        self.deciding = _picker([trigger.fixes.index(place) for place in decided])
        """Returns the open constants that a matching quad determines."""
        self.complete = len(decided) == len(group.open)
        """Whether the quad determines all open constants."""
        self.connected = _connected(plan, trigger)
        """Whether every pattern is joined to this one, so that leaving the other constants open pays off."""
        fixed = {place: position for position, place in enumerate(trigger.fixes) if place is not None}
        self.own_places = [place for place in fixed if place in trigger.own]
        self.own = _picker([fixed[place] for place in self.own_places])
        """Returns the values of a matching quad at positions that no other pattern uses."""
        self.shared_places = [place for place in fixed if place not in trigger.own]
        self.shared = _picker([fixed[place] for place in self.shared_places])
        """Returns the values of a matching quad at the other positions."""
        positions = [place for place in trigger.fixes if place is not None]
        self.simple = len(positions) == len(set(positions)) and trigger.fixes[3] is None
        """Whether the constants of the pattern alone decide if a quad matches it."""
        self._fixed = list(fixed.items())
        self._tested: Frame = group.open_frame()
        """Frame of `accepts`: the constants of the group, and the values of the last quad."""
        self.alternative: tuple[GroupTrigger[M], ...] = ()
        """All triggers of the same alternative, which share this tuple."""
        self._memo: Memo[M] = {}
        self._held = 0
        """Bytes in the cache."""

    @property
    def direct(self) -> bool:
        """Whether the pattern is the whole plan, so that a changed quad is a changed solution."""
        return self.plan.operator is self.trigger.scan

    def accepts(self, quad: Quad) -> bool:
        """Return whether a matching quad satisfies the filters that depend on it alone. Raises `ResultTooLarge`."""
        frame = self._tested
        for place, position in self._fixed:
            frame[place] = quad[position]
        for guard in self.trigger.guards:  # noqa: SIM110  runs for each changed quad; `all` would take half as long again
            if not guard(frame):
                return False
        return True

    def recall(self, key: MemoKey[M]) -> Solutions[M] | None:
        """Return the cached solutions of the rest of the plan, or None."""
        return self._memo.get(key)

    def remember(self, key: MemoKey[M], found: Solutions[M]) -> None:
        """Cache the solutions of the rest of the plan until one of its quads changes.

        Readings change often, but the patterns around them rarely do, so the cache usually stays valid.
        """
        # The places differ from quad to quad, so entries would hardly ever be found again.
        if not self.trigger.steady:
            return
        memory, dictionary = self.group.memory, self.group.dictionary
        size = row_bytes(dictionary, key[1]) + sum([row_bytes(dictionary, row) for _, row in found])
        if size > memory.most:
            return
        # The entries of this trigger make room. Those of other triggers stay.
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
        """Empty the cache."""
        if not self._memo:
            return
        memo, self._memo = self._memo, {}
        self.group.memory.held -= self._held
        self._held = 0
        for (_, values), found in memo.items():
            for term_ids in (values, *(row for _, row in found)):
                release(self.group.dictionary, term_ids)

    def restriction(self, frame: Frame, quad: Quad) -> Restriction | None:
        """Return the bindings of a quad if it matches the pattern with the constants of a frame, else None."""
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


def reached(
    trigger: Trigger, reach: OptionalRightSide, frame: Frame, quad: Quad, rules: QueryRules
) -> set[Restriction]:
    """Return the restrictions to the solutions that a quad affects, in the state that has the quad.

    `reach` is that of the trigger. The restrictions may include solutions that do not change, because the left side and
    the condition are not evaluated. Without a restriction the quad affects no solution. Raises `ResultTooLarge`.
    """
    start = frame.copy()
    for place, term_id in zip(trigger.places, quad, strict=True):
        known = start[place]
        if known is None and not (place == trigger.places[3] and term_id == DEFAULT_GRAPH):
            start[place] = term_id
        elif known != term_id:
            return set()
    found: set[Restriction] = set()
    trigger.scan.given = True
    try:
        for _ in bounded(reach.operator.solutions(start), rules):
            values = {whole: start[place] for place, whole in reach.shared}
            found.add(tuple(sorted(values.items())))  # type: ignore[arg-type]
    finally:
        trigger.scan.given = False
    return found


class PlanGroup(Generic[M]):
    """Subscriptions with one plan, and with equal constants where those cannot stay open."""

    def __init__(self, plan: QueryPlan, graph: LiveGraph, closed: Row, memory: MemoLimit) -> None:
        """`closed`: the term ids of the parameters in the layout's order, None for open parameters."""
        self.plan = plan
        self.memory = memory
        self.closed = closed
        self.open = open_places(plan)
        self.members: dict[Row, M] = {}
        self.fault_logged = False
        """Whether a fault of the common evaluation was logged already."""
        self._graph = graph
        self._base = plan.layout.frame(graph, closed)
        for place in self.open:
            self._base[place] = None
        retain(graph.dictionary, tuple(self._base))
        self.broad = [BroadChanges() for _ in plan.alternatives]
        self._shown = [[each.shown[place] for place in self.open] for each in plan.alternatives]
        self.triggers: tuple[GroupTrigger[M], ...] = tuple(
            GroupTrigger(self, number, trigger)
            for number, each in enumerate(plan.alternatives)
            for trigger in each.triggers
        )
        for _, entries in groupby(self.triggers, key=attrgetter("number")):
            alternative = tuple(entries)
            for entry in alternative:
                entry.alternative = alternative

    @property
    def dictionary(self) -> Dictionary:
        """Dictionary of the term ids."""
        return self._graph.dictionary

    @property
    def budget(self) -> StepBudget:
        """Step budget of the running evaluation."""
        return self._graph.budget

    def forget(self) -> None:
        """Empty the caches of all triggers, because the members or the graph have changed."""
        for trigger in self.triggers:
            trigger.forget()

    def release(self) -> None:
        """Release the constants and break reference cycles. The group must have no members."""
        release(self._graph.dictionary, tuple(self._base))
        for trigger in self.triggers:
            trigger.alternative = ()
        self.triggers = ()  # a reference cycle would stay in memory until the next garbage collection

    def open_frame(self) -> Frame:
        """Return the frame for an evaluation for all members at once."""
        return self._base.copy()

    def whose(self, number: int, solution: Sequence[int | None]) -> M | None:
        """Return the member to which a solution with open constants belongs, or None."""
        return self.members.get(tuple([solution[place] for place in self._shown[number]]))

    def row(self, member: M, solution: Frame) -> Frame:
        """Return a solution with the constants of a member."""
        row = solution.copy()
        for place, term_id in zip(self.open, member.open, strict=True):
            row[place] = term_id
        return row

    def keys(self, open_: Row) -> Iterator[tuple[Key, GroupTrigger[M]]]:
        """Yield the LUTT keys of a member: each trigger with the constants of its pattern."""
        frames = [self.frame(number, open_) for number in range(len(self.plan.alternatives))]
        for trigger in self.triggers:
            frame = frames[trigger.number]
            s, p, o, g = (frame[place] for place in trigger.trigger.places)
            yield (s, p, o, g), trigger

    def frame(self, number: int, open_: Row) -> Frame:
        """Return the frame for an evaluation of one alternative for a member."""
        frame = self._base.copy()
        for place, term_id in zip(self.open, open_, strict=True):
            frame[place] = term_id
        for variable, constant in self.plan.alternatives[number].fixed:
            value = frame[constant]
            if value is not None and frame[variable] is None and same_term(self._graph, value):
                frame[variable] = value
        return frame


def open_places(plan: QueryPlan) -> tuple[int, ...]:
    """Return the frame positions of the parameters that can stay open, in the layout's order."""
    return tuple(place for _, place in plan.layout.parameters if all(place in each.shown for each in plan.alternatives))


def _connected(plan: Plan, start: Trigger) -> bool:
    """Return whether all mandatory triple patterns share variables with this one, directly or through others."""
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
    """Return the solutions of a pattern that match at least one restriction, with their multiplicities.

    Raises `ResultTooLarge`.
    """
    found: Found = Bag()
    start = frame.copy()
    for restriction in restrictions:
        start[:] = frame
        for place, term_id in restriction:
            start[place] = term_id
        part: Found = Bag()
        for _ in bounded(plan.operator.solutions(start), rules):
            part.add(tuple(start))
        # A solution under two restrictions has the same multiplicity in both, so it counts once.
        found.update(part)
        if len(found) > rules.max_solutions:
            raise too_many(rules)
    return found


def every_solution(group: PlanGroup[M], open_: Row, rules: QueryRules, steps: int | None = None) -> Weights:
    """Return all solutions of a member. `steps`: step budget, None for the maximum. Raises `ResultTooLarge`."""
    weights: Weights = Bag()
    group.budget.begin(steps)
    for number, plan in enumerate(group.plan.alternatives):
        frame = group.frame(number, open_)
        weights.merge(solutions(plan, frame, ((),), rules))
    return weights


def _picker(positions: Sequence[int]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Return a function that extracts these positions of a quad as a tuple. It runs in C."""
    if len(positions) == 1:
        (position,) = positions
        return itemgetter(slice(position, position + 1))  # a slice, because the result has to be a tuple
    return itemgetter(*positions) if positions else itemgetter(slice(0))
