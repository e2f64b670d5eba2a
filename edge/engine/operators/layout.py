"""Frames: where the constants and variables of a plan stand while it runs.

All slots of a plan live in one *frame*, a list of term ids: constants are filled in before anything runs, variables
while it runs. To an operator a constant is then nothing but a variable that is bound already, and so is a forced
binding, and so is what a changed quad fixes in advance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edge.engine.sparql.algebra import Blank, Fresh, Parameter, Slot, Triple, Variable
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph

Frame = list[int | None]
"""Term ids by place; None: not bound."""

Places = tuple[int, int, int, int]
"""Where in the frame the subject, predicate, object and graph of a quad stand."""


class Hidden:
    """A variable that no text names: a copy of one, or one of a scope that nobody else sees."""

    __slots__ = ()


Key = Slot | Hidden | None
"""What has a place. None: the default graph."""


class Layout:
    """Which slot stands at which place of the frame."""

    def __init__(self, same: Sequence[int] = ()) -> None:
        """`same`: for each parameter's index that of the first parameter which is always equal to it."""
        self._same = same
        self._by_index: dict[int, int] = {}
        self.places: dict[Key, int] = {}
        self.fresh: list[int] = []
        """The places of the blank nodes of templates: a new one for each solution."""
        self.parameters: list[tuple[Parameter, int]] = []
        """The constants that differ between texts of one shape, and their places."""

    def place(self, key: Key) -> int:
        """The place of a slot, given one if it has none."""
        known = self.places.get(key)
        if known is not None:
            return known
        if isinstance(key, Parameter):
            index = self._same[key.index] if self._same else key.index
            if index in self._by_index:
                return self._by_index[index]
            self._by_index[index] = len(self.places)
            self.parameters.append((key, len(self.places)))
        place = self.places[key] = len(self.places)
        if isinstance(key, Fresh):
            self.fresh.append(place)
        return place

    def quad(self, triple: Triple) -> Places:
        """The places of a triple of a template."""
        place = self.place
        return place(triple.subject), place(triple.predicate), place(triple.object), place(triple.graph)

    def template(self, triples: Iterable[Triple]) -> tuple[Places, ...]:
        """The places of a template."""
        return tuple(self.quad(triple) for triple in triples)

    def frame(self, graph: LiveGraph, parameters: Sequence[int | None] = ()) -> Frame:
        """A new frame with everything filled in that does not vary.

        `parameters` are term ids in the order of `self.parameters`; without them it is the terms of the text that was
        parsed.
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
