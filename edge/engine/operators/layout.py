"""Frames: the storage of a plan's constants and variables while it runs.

All slots of a plan are in one *frame*, a list of term ids. A *place* is an index into it. Constants are filled in
before the plan runs, variables while it runs. So to an operator a constant is just a variable that is already bound, as
is a forced binding, or a value that a changed quad fixes in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.sparql.algebra import Blank, Fresh, Parameter, Slot, Triple, Variable

Frame = list[int | None]
"""Term ids by place; None: not bound."""

Places = tuple[int, int, int, int]
"""Places of the subject, predicate, object and graph of a quad."""


class Hidden:
    """A variable that no text names: a copy, or a variable of a scope that is invisible outside."""

    __slots__ = ()


Key = Slot | Hidden | None
"""An object with a place. None: the default graph."""


class SlotLayout:
    """Assignment of places to slots."""

    def __init__(self, same: Sequence[int] = ()) -> None:
        """`same`: for each parameter's index that of the first parameter that always equals it."""
        self._same = same
        self._by_index: dict[int, int] = {}
        self.places: dict[Key, int] = {}
        self.fresh: list[int] = []
        """Places of the blank nodes of templates: a new one for each solution."""
        self.parameters: list[tuple[Parameter, int]] = []
        """The constants that differ between texts of one template, and their places."""

    def place(self, key: Key) -> int:
        """Return the place of a slot; assign one if needed."""
        known = self.places.get(key)
        if known is not None:
            return known
        if isinstance(key, Parameter):
            index = self._same[key.index] if self._same else key.index
            # Constants that are equal in all texts of a template share a place, so that they can be joined on.
            if index in self._by_index:
                return self._by_index[index]
            self._by_index[index] = len(self.places)
            self.parameters.append((key, len(self.places)))
        place = self.places[key] = len(self.places)
        if isinstance(key, Fresh):
            self.fresh.append(place)
        return place

    def quad(self, triple: Triple) -> Places:
        """Return the places of a triple of a template."""
        place = self.place
        return place(triple.subject), place(triple.predicate), place(triple.object), place(triple.graph)

    def template(self, triples: Iterable[Triple]) -> tuple[Places, ...]:
        """Return the places of a template."""
        return tuple(self.quad(triple) for triple in triples)

    def frame(self, graph: LiveGraph, parameters: Sequence[int | None] = ()) -> Frame:
        """Return a new frame with all constants filled in.

        `parameters`: term ids in the order of `self.parameters`. Without them the terms of the parsed text are used.
        """
        intern = graph.dictionary.intern
        frame: Frame = [None] * len(self.places)
        for key, place in self.places.items():
            if key is None:
                frame[place] = DEFAULT_GRAPH
            elif isinstance(key, Parameter):
                frame[place] = intern(key.term)
            elif not isinstance(key, Variable | Blank | Fresh | Hidden):
                frame[place] = intern(key)
        for (_, place), term_id in zip(self.parameters, parameters, strict=False):
            frame[place] = term_id
        return frame
