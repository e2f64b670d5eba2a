"""Look-ups: the fast path of a pattern in which each triple pattern has one free position at most.

Most updates replace the value of a known thing, so each of their triple patterns has at most one match. Then no search
is needed: one pass over the patterns finds the only solution. As soon as a pattern has several matches, the operators
search for the solutions instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import Operator, Scan
from edge.engine.store.graph import LiveGraph


class LookupStep(NamedTuple):
    """Look-up of one triple pattern: the places of its positions, and the place that it binds (None: it only tests)."""

    subject: int
    predicate: int
    object: int
    graph: int
    free: int | None


class LookupGroup(NamedTuple):
    """The triple patterns of the pattern itself, or of one OPTIONAL."""

    steps: Sequence[LookupStep]
    binds: Sequence[int]
    """The places that the look-ups bind."""
    optional: bool


class Lookups:
    """Look-ups of the only solution of a pattern."""

    __slots__ = ("_budget", "_graphs", "groups", "size")

    def __init__(self, graph: LiveGraph, groups: Sequence[LookupGroup]) -> None:
        self._graphs = graph.graphs
        self._budget = graph.budget
        self.groups = groups
        """The look-ups of the pattern itself, then those of each OPTIONAL."""
        self.size = sum(len(group.steps) for group in groups)
        """Steps that a solution takes."""

    @classmethod
    def of(cls, graph: LiveGraph, operator: Operator, constants: Collection[int]) -> Self | None:
        """Return the look-ups of a pattern; None if it needs more than look-ups. `constants`: places that are bound."""
        scans = operator.groups()
        if scans is None:
            return None
        certain, possible = set(constants), set[int]()
        groups: list[LookupGroup] = []
        for number, group in enumerate(scans):
            places = {place for scan in group for place in scan.places}
            # `GRAPH ?g` excludes the default graph, and a variable of an earlier OPTIONAL may have no value.
            if possible & places or not {scan.places[3] for scan in group} <= set(constants):
                return None
            steps = _steps(group, certain)
            if steps is None:
                return None
            binds = [step.free for step in steps if step.free is not None]
            groups.append(LookupGroup(steps, binds, optional=number > 0))
            (possible if number else certain).update(binds)
        return cls(graph, groups)

    def solve(self, frame: Frame) -> bool | None:
        """Write the only solution into the frame, and return whether there is one.

        None: there may be several, and the frame is unchanged. May raise `ResultTooLarge`.
        """
        graphs = self._graphs
        for steps, binds, optional in self.groups:
            for s, p, o, g, free in steps:
                index = graphs.get(frame[g])  # type: ignore[arg-type]  # the places that a step reads are bound
                if index is None:
                    break
                if free is None:
                    if index.contains(frame[s], frame[p], frame[o]):  # type: ignore[arg-type]
                        continue
                    break
                leaf = index.objects(frame[s], frame[p]) if free == o else index.subjects(frame[p], frame[o])  # type: ignore[arg-type]
                if leaf is None:
                    break
                if not isinstance(leaf, int):
                    self._unbind(frame)
                    return None
                frame[free] = leaf
            else:
                continue
            if not optional:
                self._unbind(frame)
                self._budget.spend(self.size)
                return False
            for place in binds:
                frame[place] = None
        self._budget.spend(self.size)
        return True

    def _unbind(self, frame: Frame) -> None:
        for group in self.groups:
            for place in group.binds:
                frame[place] = None


def _steps(scans: Sequence[Scan], certain: Collection[int]) -> Sequence[LookupStep] | None:
    """Order the patterns of a group so that each has one free position at most. None: there is no such order."""
    bound = set(certain)
    waiting = [scan.places for scan in scans]
    steps: list[LookupStep] = []
    while waiting:
        # A variable in two positions of a pattern counts twice, because no look-up compares them.
        free = [[place for place in places if place not in bound] for places in waiting]
        number = min(range(len(waiting)), key=lambda each: len(free[each]))
        places, unbound = waiting.pop(number), free[number]
        if not unbound:
            steps.append(LookupStep(*places, None))
        elif len(unbound) == 1 and unbound[0] != places[1]:
            steps.append(LookupStep(*places, unbound[0]))
            bound.add(unbound[0])
        else:
            return None
    return steps
