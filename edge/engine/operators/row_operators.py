"""Operators that change the solutions of one pattern, or bring their own: BIND, VALUES, DISTINCT, GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from edge.engine.operators.aggregates import Accumulator
from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import Operator, Value
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.terms import LITERAL


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
