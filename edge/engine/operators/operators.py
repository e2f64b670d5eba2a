"""Operators: the algebra as nested loops with backtracking over the live graph.

An operator enumerates its solutions into a frame. Variables that are bound at its start restrict it: it yields only the
solutions that agree with them. It unbinds its own variables when it continues and when it ends. Between two steps the
caller may read and copy the frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from edge.engine.operators.aggregates import Accumulator
from edge.engine.operators.layout import Frame, Places
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph, TripleIndex
from edge.engine.store.terms import LITERAL

Condition = Callable[[Frame], bool]
Value = Callable[[Frame], "int | None"]
"""Returns the id of an expression's value; None: an error or unbound."""


class Operator(ABC):
    """A part of a plan."""

    __slots__ = ()

    @abstractmethod
    def solutions(self, frame: Frame) -> Iterator[None]:
        """Yield once for every solution that agrees with the frame, with multiplicity.

        The frame holds the solution until the next step.
        """

    @abstractmethod
    def estimate(self, frame: Frame) -> float:
        """Return the approximate number of solutions, without searching for them."""

    def narrowed(self, cost: float, frame: Frame, places: Collection[int]) -> float:
        """Return the estimate if these places are bound as well. `cost`: the estimate if they are not."""
        return cost * 0.1 ** len(places)

    def groups(self) -> Sequence[Sequence[Scan]] | None:
        """Return the scans of a join of triple patterns, then those of each OPTIONAL in it. None: another pattern."""
        return None


class Scan(Operator):
    """The matches of one triple pattern."""

    __slots__ = ("_budget", "_graphs", "given", "places")

    def __init__(self, graph: LiveGraph, places: Places) -> None:
        self._graphs = graph.graphs
        self._budget = graph.budget
        self.places = places
        self.given = False
        """Whether a quad is known to match: the frame contains all of it, so no look-up is needed."""

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        if self.given:
            yield
            return
        budget = self._budget
        budget.left -= 1
        if budget.left < 0:
            raise budget.spent()
        s, p, o, g = self.places
        name = frame[g]
        if name is None:
            # An open graph is a named one: GRAPH ?g never matches the default graph (section 13.3).
            for candidate, index in self._graphs.items():
                if candidate != DEFAULT_GRAPH:
                    budget.spend(1)
                    frame[g] = candidate
                    yield from self._triples(index, frame)
            frame[g] = None
            return
        there = self._graphs.get(name)
        if there is None:
            return
        subject, predicate, object_ = frame[s], frame[p], frame[o]
        # Several positions are open: one variable may stand at two of them, which `_triples` compares.
        if predicate is None or (subject is None and object_ is None):
            yield from self._triples(there, frame)
            return
        # The common case of joins: one look-up, and often one result.
        if subject is None:
            free, leaf = s, there.subjects(predicate, object_)  # type: ignore[arg-type]
        elif object_ is None:
            free, leaf = o, there.objects(subject, predicate)
        else:
            if there.contains(subject, predicate, object_):
                yield
            return
        if leaf is None:
            return
        if isinstance(leaf, int):
            frame[free] = leaf
            yield
        else:
            for term_id in leaf:
                # For each triple, because nothing after it need take steps: a filter may reject all of them.
                budget.left = left = budget.left - 1
                if left < 0:
                    raise budget.spent()
                frame[free] = term_id
                yield
        frame[free] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        if self.given:
            return 0.0
        s, p, o, g = self.places
        name = frame[g]
        index = self._graphs.get(DEFAULT_GRAPH if name is None else name)
        return 0.0 if index is None else index.estimate(frame[s], frame[p], frame[o])

    def groups(self) -> Sequence[Sequence[Scan]]:
        """See `Operator`."""
        return ((self,),)

    def _triples(self, index: TripleIndex, frame: Frame) -> Iterator[None]:
        s, p, o, _ = self.places
        subject, predicate, object_ = frame[s], frame[p], frame[o]
        budget = self._budget
        for triple in index.match(subject, predicate, object_):
            budget.left = left = budget.left - 1
            if left < 0:
                raise budget.spent()
            if subject is None:
                frame[s] = triple[0]
            if predicate is None:
                if p == s and triple[1] != triple[0]:
                    continue
                frame[p] = triple[1]
            if object_ is None:
                if (o == s and triple[2] != triple[0]) or (o == p and triple[2] != triple[1]):
                    continue
                frame[o] = triple[2]
            yield
        if subject is None:
            frame[s] = None
        if predicate is None:
            frame[p] = None
        if object_ is None:
            frame[o] = None


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


class Fixed(Operator):
    """A pattern under filters `?variable = constant`: the variable is bound before the pattern runs.

    The pattern certainly binds it. Nothing is fixed where `=` compares values instead of terms; a filter above tests
    that.
    """

    __slots__ = ("_graph", "_pairs", "_pattern")

    def __init__(self, graph: LiveGraph, pattern: Operator, pairs: Sequence[tuple[int, int]]) -> None:
        """`pairs`: places of a variable and of a constant."""
        self._graph = graph
        self._pattern = pattern
        self._pairs = pairs

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        fixed: list[int] = []
        agrees = True
        for variable, constant in self._pairs:
            value, known = frame[constant], frame[variable]
            # For a number, `=` is true for other terms as well: 1.0 equals 1.
            if value is None or not same_term(self._graph, value) or known == value:
                continue
            if known is not None:
                agrees = False
                break
            frame[variable] = value
            fixed.append(variable)
        if agrees:
            yield from self._pattern.solutions(frame)
        for variable in fixed:
            frame[variable] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        for variable, constant in self._pairs:
            if frame[variable] is None and frame[constant] is not None:
                return self._pattern.estimate(frame) * 0.1
        return self._pattern.estimate(frame)


_STRINGS: Final = frozenset(
    {"http://www.w3.org/2001/XMLSchema#string", "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"}
)


def same_term(graph: LiveGraph, term_id: int) -> bool:
    """Return whether `=` with this constant is true only for the same term (SPARQL 1.1 Query, 17.4.1.7)."""
    if graph.dictionary.kinds[term_id] != LITERAL:
        return True
    return graph.dictionary.terms[term_id].datatype.value in _STRINGS  # type: ignore[union-attr]


class Bind(Operator):
    """BIND: a variable gets the value of an expression; an error leaves it unbound."""

    __slots__ = ("_pattern", "_place", "_value")

    def __init__(self, pattern: Operator, place: int, value: Value) -> None:
        self._pattern = pattern
        self._place = place
        self._value = value

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        place = self._place
        # Bound already if a changed quad or a trigger fixes it in advance. Then BIND is a test.
        given = frame[place]
        for _ in self._pattern.solutions(frame):
            value = self._value(frame)
            if given is None:
                frame[place] = value
                yield
                frame[place] = None
            elif value == given:
                yield

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._pattern.estimate(frame)


class InlineData(Operator):
    """VALUES with a few rows of constants."""

    __slots__ = ("_budget", "_places", "_rows")

    def __init__(self, graph: LiveGraph, places: Sequence[int], rows: Sequence[Sequence[int | None]]) -> None:
        """`places` of the variables. Each row has the places of its constants, None for UNDEF."""
        self._budget = graph.budget
        self._places = places
        self._rows = rows

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        places = self._places
        given = [frame[place] for place in places]
        for row in self._rows:
            self._budget.spend(1)
            values = [None if constant is None else frame[constant] for constant in row]
            if all(old is None or new is None or old == new for old, new in zip(given, values, strict=True)):
                for place, old, new in zip(places, given, values, strict=True):
                    frame[place] = new if old is None else old
                yield
        for place, old in zip(places, given, strict=True):
            frame[place] = old

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return len(self._rows)


class InGraph(Operator):
    """GRAPH: a pattern for each named graph, or for one that is given and exists."""

    __slots__ = ("_budget", "_graphs", "_name", "_pattern")

    def __init__(self, graph: LiveGraph, name: int, pattern: Operator) -> None:
        self._graphs = graph.graphs
        self._budget = graph.budget
        self._name = name
        self._pattern = pattern

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        name = self._name
        given = frame[name]
        if given is not None:
            if given in self._graphs and given != DEFAULT_GRAPH:
                yield from self._pattern.solutions(frame)
            return
        for graph in self._graphs:
            self._budget.spend(1)
            if graph != DEFAULT_GRAPH:
                frame[name] = graph
                yield from self._pattern.solutions(frame)
        frame[name] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._pattern.estimate(frame)


class Merge(Operator):
    """A part of a join that was compiled with copies of the variables that it may leave unbound.

    So outer bindings cannot affect it: they could make an OPTIONAL in it fail. Each of its solutions is then compared
    with the outer bindings.
    """

    __slots__ = ("_copies", "_pattern")

    def __init__(self, pattern: Operator, copies: Sequence[tuple[int, int]]) -> None:
        """`copies`: pairs of places of a variable and its copy."""
        self._pattern = pattern
        self._copies = copies

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        for _ in self._pattern.solutions(frame):
            taken: list[int] = []
            agrees = True
            for variable, copy in self._copies:
                value, known = frame[copy], frame[variable]
                if value is None or known == value:
                    continue
                if known is not None:
                    agrees = False
                    break
                frame[variable] = value
                taken.append(variable)
            if agrees:
                yield
            for variable in taken:
                frame[variable] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._pattern.estimate(frame)


class DistinctOperator(Operator):
    """DISTINCT in a sub-query: each of its solutions once."""

    __slots__ = ("_pattern", "_places")

    def __init__(self, pattern: Operator, places: Sequence[int]) -> None:
        """`places` of the selected variables."""
        self._pattern = pattern
        self._places = places

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        places = self._places
        given = [frame[place] for place in places]
        # Collected first, because the frame is rewritten while the rows are yielded.
        rows = dict.fromkeys(tuple(frame[place] for place in places) for _ in self._pattern.solutions(frame))
        for row in rows:
            for place, term_id in zip(places, row, strict=True):
                frame[place] = term_id
            yield
        for place, old in zip(places, given, strict=True):
            frame[place] = old

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


class Grouped(Operator):
    """GROUP BY in a sub-query: one solution for each group."""

    __slots__ = ("_aggregates", "_intern", "_keys", "_pattern")

    def __init__(
        self,
        graph: LiveGraph,
        pattern: Operator,
        keys: Sequence[int],
        aggregates: Sequence[tuple[int, Callable[[], Accumulator], Callable[[Frame], Hashable | None]]],
    ) -> None:
        """`keys`: places. Each aggregate: its place, a factory of accumulators, and the accumulated value."""
        self._intern = graph.dictionary.intern
        self._pattern = pattern
        self._keys = keys
        self._aggregates = aggregates

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        groups: dict[tuple[int | None, ...], list[Accumulator]] = {}
        if not self._keys:
            groups[()] = [new() for _, new, _ in self._aggregates]
        for _ in self._pattern.solutions(frame):
            key = tuple(frame[place] for place in self._keys)
            group = groups.get(key)
            if group is None:
                group = groups[key] = [new() for _, new, _ in self._aggregates]
            for accumulator, (_, _, value) in zip(group, self._aggregates, strict=True):
                accumulator.add(value(frame), 1)
        given = [frame[place] for place in self._keys]
        for key, group in groups.items():
            for place, term_id in zip(self._keys, key, strict=True):
                frame[place] = term_id
            for accumulator, (place, _, _) in zip(group, self._aggregates, strict=True):
                result = accumulator.result()
                frame[place] = None if result is None else self._intern(result)
            yield
        for place, old in zip(self._keys, given, strict=True):
            frame[place] = old
        for place, _, _ in self._aggregates:
            frame[place] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self._pattern.estimate(frame)
