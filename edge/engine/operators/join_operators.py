"""Operators that combine patterns: join, OPTIONAL, UNION, MINUS, filters and EXISTS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import Condition, Operator, Scan
from edge.engine.store.graph import LiveGraph


class FilterGuard:
    """A condition of a filter. If it depends on one triple pattern only, that is its `scan`.

    A quad that is known to match that pattern was tested before (`Trigger.guards`), so the condition holds.
    """

    __slots__ = ("condition", "scan")

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self.scan: Scan | None = None

    def __call__(self, frame: Frame) -> bool:
        """Return whether the condition holds."""
        return (self.scan is not None and self.scan.given) or self.condition(frame)


class JoinOperator(Operator):
    """Join: parts in the order of least expected work, and conditions as soon as their variables are bound.

    A part depends only on variables that it certainly binds itself (see `compiler`), so every order gives the same
    result.
    """

    __slots__ = ("_binds", "_conditions", "_graph", "_orders", "_parts", "_places")

    def __init__(
        self,
        graph: LiveGraph,
        parts: Sequence[tuple[Operator, frozenset[int]]],
        conditions: Sequence[tuple[Condition, frozenset[int]]],
    ) -> None:
        """`parts` with the places that each certainly binds, `conditions` with the places that each needs."""
        self._graph = graph
        self._parts = [part for part, _ in parts]
        self._binds = [binds for _, binds in parts]
        self._conditions = conditions
        self._places = sorted(frozenset[int]().union(*self._binds, *(needs for _, needs in conditions)))
        self._orders: dict[tuple[bool, ...], _Order] = {}

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        levels = self._levels(frame)
        last = len(levels)
        if not last:
            if all(condition(frame) for condition, _ in self._conditions):
                yield
            return
        # A stack of iterators: nested generators would pass each solution up through all parts.
        stack = [levels[0][0].solutions(frame)]
        while stack:
            conditions = levels[len(stack) - 1][1]
            for _ in stack[-1]:
                if conditions and not all(condition(frame) for condition in conditions):
                    continue
                if len(stack) < last:
                    stack.append(levels[len(stack)][0].solutions(frame))
                    break
                yield
            else:
                stack.pop()

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return min((part.estimate(frame) for part in self._parts), default=1.0)

    def groups(self) -> Sequence[Sequence[Scan]] | None:
        """See `Operator`."""
        scans = [part for part in self._parts if isinstance(part, Scan)]
        return None if self._conditions or len(scans) < len(self._parts) else (scans,)

    def _levels(self, frame: Frame) -> Levels:
        """Return the parts in order. The order is cached by the set of bound places until the graph's size changes."""
        bound = tuple([frame[place] is None for place in self._places])
        order = self._orders.get(bound)
        if order is None or not order.uses % 64:
            size = len(self._graph)
            if order is None or not order.uses or abs(size - order.size) > order.size // 8:
                order = self._orders[bound] = _Order(self._ordered(frame), size)
        order.uses -= 1
        return order.levels

    def _ordered(self, frame: Frame) -> Levels:
        """Order the parts: the most selective first, then connected ones; each with the conditions to test then."""
        parts = self._parts
        left = list(range(len(parts)))
        # Never 0, so that bound places still make a difference between empty parts.
        costs = [part.estimate(frame) + 0.01 for part in self._parts]
        waiting = list(self._conditions)
        bound = {place for place in self._places if frame[place] is not None}
        levels: Levels = []
        while left:
            best = min(left, key=lambda i: parts[i].narrowed(costs[i], frame, self._binds[i] & bound))
            left.remove(best)
            bound |= self._binds[best]
            # As soon as their variables are bound: a condition that fails spares all later parts.
            ready = [item for item in waiting if item[1] <= bound]
            waiting = [item for item in waiting if item not in ready]
            levels.append((self._parts[best], [condition for condition, _ in (ready if left else ready + waiting)]))
        return levels


Levels = list[tuple[Operator, list[Condition]]]
"""Parts of a join in order, each with the conditions that can be tested after its match."""


@dataclass(slots=True)
class _Order:
    levels: Levels
    size: int
    """Size of the graph in quads when the order was chosen."""
    uses: int = 1024
    """Uses until the order is chosen again."""


class Optional(Operator):
    """Left join: each left solution extended by the compatible right ones, or unchanged without one."""

    __slots__ = ("_condition", "_left", "_right")

    def __init__(self, left: Operator, right: Operator, condition: Condition | None) -> None:
        self._left = left
        self._right = right
        self._condition = condition

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        condition = self._condition
        for _ in self._left.solutions(frame):
            found = False
            for _ in self._right.solutions(frame):
                if condition is None or condition(frame):
                    found = True
                    yield
            if not found:
                yield

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._left.estimate(frame)

    def groups(self) -> Sequence[Sequence[Scan]] | None:
        """See `Operator`."""
        left, right = self._left.groups(), self._right.groups()
        if left is None or right is None or len(right) > 1 or self._condition is not None:
            return None
        return (*left, *right)


class UnionOperator(Operator):
    """Union: the solutions of all branches."""

    __slots__ = ("_branches", "_budget")

    def __init__(self, graph: LiveGraph, branches: Sequence[Operator]) -> None:
        self._branches = branches
        self._budget = graph.budget

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        for branch in self._branches:
            self._budget.spend(1)
            yield from branch.solutions(frame)

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return sum(branch.estimate(frame) for branch in self._branches)


class MinusOperator(Operator):
    """MINUS: left solutions without a compatible right solution that shares at least one variable."""

    __slots__ = ("_left", "_overlap", "_right", "_same")

    def __init__(
        self,
        left: Operator,
        right: Operator,
        overlap: Sequence[tuple[int, int]] | None,
        same: Sequence[tuple[int, int]],
    ) -> None:
        """`overlap`: pairs of places of which one must be bound on both sides; None: one always is.

        `same`: pairs that must not differ if both are bound. Other shared variables have the same place.
        """
        self._left = left
        self._right = right
        self._overlap = overlap
        self._same = same

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        for _ in self._left.solutions(frame):
            if not self._excluded(frame):
                yield

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._left.estimate(frame)

    def _excluded(self, frame: Frame) -> bool:
        before = None if self._overlap is None else [pair for pair in self._overlap if frame[pair[0]] is not None]
        # No shared variable is bound on the left: MINUS removes nothing (section 18.5).
        if before == []:
            return False
        left = frame.copy()
        for _ in self._right.solutions(frame):
            differ = any(left[a] is not None and frame[b] is not None and left[a] != frame[b] for a, b in self._same)
            if not differ and (before is None or any(frame[b] is not None for _, b in before)):
                frame[:] = left  # the search stopped half way, with bindings in the frame
                return True
        return False


class Where(Operator):
    """FILTER: solutions for which every condition is true."""

    __slots__ = ("_conditions", "_pattern")

    def __init__(self, pattern: Operator, conditions: Sequence[Condition]) -> None:
        self._pattern = pattern
        self._conditions = conditions

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        conditions = self._conditions
        for _ in self._pattern.solutions(frame):
            if all(condition(frame) for condition in conditions):
                yield

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._pattern.estimate(frame)


def holds(pattern: Operator) -> Condition:
    """EXISTS: return the test whether the pattern has a solution that agrees with the frame."""

    def condition(frame: Frame) -> bool:
        before = frame.copy()
        for _ in pattern.solutions(frame):
            frame[:] = before  # the search stopped half way, with bindings in the frame
            return True
        return False

    return condition
