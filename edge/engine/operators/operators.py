"""Operators: the algebra as nested loops with backtracking over the live graph.

An operator enumerates its solutions into a frame. Variables that are bound at its start restrict it: it yields only the
solutions that agree with them. It unbinds its own variables when it continues and when it ends. Between two steps the
caller may read and copy the frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence

from edge.engine.operators.layout import Frame, Places
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.triple_index import TripleIndex

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
