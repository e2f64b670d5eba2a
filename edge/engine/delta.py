"""Delta evaluation of plain patterns: only the solutions that a change can touch are computed, before and after it.

A changed quad that matches one of the triple patterns fixes the variables of that pattern. Every solution that comes,
goes or is extended differently because of the quad agrees with it on those variables, so the rest need not be looked
at. A solution as a whole (all variables, not only the selected ones) occurs once, so those touched by several changed
quads are told apart by a set, and the projected bags differ by exactly what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edge.engine.general import Rules, bounded
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.engine.pattern import Frame, Layout, Pattern, Places

Restriction = tuple[tuple[int, int], ...]
"""Places of the frame and what is bound there."""

IdRow = tuple[int | None, ...]
Bag = Counter[IdRow]


@dataclass(frozen=True, slots=True)
class _Watched:
    """A triple pattern, and which of its places a changed quad may fix in advance."""

    quad: Places
    fixable: tuple[bool, bool, bool, bool]


class DeltaPattern:
    """A pattern prepared for delta evaluation."""

    def __init__(self, pattern: Pattern, layout: Layout) -> None:
        self._pattern = pattern
        self._layout = layout
        self._watched = _watched(pattern)

    def touched(self, graph: LiveGraph, quads: Iterable[Quad], limit: int) -> Touched | None:
        """What the changed quads touch. None: more than is worth it (`limit` restrictions), or everything."""
        frame = self._layout.frame(graph, {})
        restrictions: dict[Restriction, None] = {}
        for quad in quads:
            for watched in self._watched:
                restriction = _unify(frame, watched, quad)
                if restriction is None:
                    continue
                if not restriction or len(restrictions) > limit:
                    return None
                restrictions[restriction] = None
        return Touched(self._pattern, frame, tuple(restrictions))


@dataclass(frozen=True, slots=True)
class Touched:
    """The part of a pattern's solutions that a change can touch."""

    pattern: Pattern
    frame: Frame
    restrictions: Sequence[Restriction]

    def solutions(self, graph: LiveGraph, rules: Rules) -> set[IdRow]:
        """The touched solutions in the state that the graph is in, whole. Raises `ResultTooLarge`."""
        found: set[IdRow] = set()
        frame = self.frame
        for restriction in self.restrictions:
            for place, term_id in restriction:
                frame[place] = term_id
            try:
                found.update(map(tuple, bounded(self.pattern.solutions(graph, frame), rules)))
            finally:
                for place, _ in restriction:
                    frame[place] = None
        return found


def difference(old: set[IdRow], new: set[IdRow], columns: Sequence[int]) -> tuple[Bag, Bag]:
    """The rows added and removed, projected on the places of the selected variables."""
    added = Counter(tuple(row[place] for place in columns) for row in new - old)
    removed = Counter(tuple(row[place] for place in columns) for row in old - new)
    return added - removed, removed - added


def _watched(pattern: Pattern) -> list[_Watched]:
    """A variable may be fixed in advance only if no OPTIONAL stands before the block that is sure to bind it.

    Otherwise fixing it could hide the match of that OPTIONAL, which decides whether there is a solution.
    """
    watched: list[_Watched] = []
    certain: set[int] = set()
    uncertain: set[int] = set()
    for block in pattern.blocks:
        places = {place for quad in block.quads for place in quad}
        if not block.optional:
            certain |= places - uncertain
        for quad in block.quads:
            s, p, o, g = (place in certain for place in quad)
            watched.append(_Watched(quad, (s, p, o, g)))
        uncertain |= places - certain
    return watched


def _unify(frame: Frame, watched: _Watched, quad: Quad) -> Restriction | None:
    """What the quad fixes if it matches the pattern, else None."""
    fixed: dict[int, int] = {}
    seen: dict[int, int] = {}
    for place, term_id, fixable in zip(watched.quad, quad, watched.fixable, strict=True):
        constant = frame[place]
        if constant is not None:
            if constant != term_id:
                return None
            continue
        if seen.setdefault(place, term_id) != term_id:
            return None
        if fixable:
            fixed[place] = term_id
    if frame[watched.quad[3]] is None and quad[3] == DEFAULT_GRAPH:
        return None
    return tuple(sorted(fixed.items()))
