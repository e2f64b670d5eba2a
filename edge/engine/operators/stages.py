"""Stages: turn changed solutions of a pattern into changed rows of a result.

All data are Z-sets: rows with signed weights. A stage that depends on more than the changed rows retains state (counts
for DISTINCT, the accumulators of each group), and references to the terms in it. The same weights with the opposite
sign restore the earlier state.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.aggregates import Accumulator
from edge.engine.operators.layout import Frame, Places
from edge.engine.operators.operators import Condition, Value
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.terms import XSD, Dictionary
from edge.protocol.bag import Bag

Row = tuple[int | None, ...]
"""Term ids; None: unbound."""

_ROW: Final = 100
"""Bytes of a retained row and its dictionary entry, measured with 10,000 rows."""
_CELL: Final = 60
"""Bytes of each cell in addition."""

Weights = Bag[Row]
"""Rows and the number of times that they are added (positive) or removed (negative)."""


class Stage(ABC):
    """One step from solutions to results."""

    @abstractmethod
    def change(self, weights: Mapping[Row, int]) -> Weights:
        """Return the output changes for input changes."""

    def start(self) -> Weights:
        """Return the output for empty input."""
        return Bag()

    def size(self) -> int:
        """Return the number of retained rows or groups."""
        return 0

    def held(self) -> int:
        """Return the approximate bytes of the retained state."""
        return 0

    def release(self) -> None:
        """Release the references to the terms of the retained state."""
        return


class Columns(Stage):
    """Projection: the selected places of each row."""

    def __init__(self, places: Sequence[int | None]) -> None:
        """`places`: None for a variable that nothing can bind."""
        self._places = places
        # For two columns or more, `itemgetter` returns a tuple, and runs in C.
        self._pick = itemgetter(*places) if len(places) > 1 and None not in places else None

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        places, pick = self._places, self._pick
        out: Weights = Bag()
        for row, weight in weights.items():
            if pick is not None:
                out.add(pick(row), weight)
            else:
                out.add(tuple([None if place is None else row[place] for place in places]), weight)
        return out


class DistinctStage(Stage):
    """Each row once while its count is not zero."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._counts: Bag[Row] = Bag()
        self._held = 0

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        out: Weights = Bag()
        counts = self._counts
        for row, weight in weights.items():
            after = counts.add(row, weight)
            if after == weight:  # it was not there before
                retain(self._dictionary, row)
                self._held += row_bytes(self._dictionary, row)
                out[row] = 1
            elif not after:
                self._held -= row_bytes(self._dictionary, row)
                release(self._dictionary, row)
                out[row] = -1
        return out

    def size(self) -> int:
        """See `Stage`."""
        return len(self._counts)

    def held(self) -> int:
        """See `Stage`."""
        return self._held

    def release(self) -> None:
        """See `Stage`."""
        for row in self._counts:
            release(self._dictionary, row)
        self._counts.clear()
        self._held = 0


@dataclass(slots=True)
class _Group:
    size: int
    accumulators: list[Accumulator]
    row: Row | None
    """Output row; None if HAVING rejects it."""
    held: int = 0
    """Approximate bytes of the group."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Definition of groups. All places are those of the plan's layout."""

    keys: Sequence[int]
    aggregates: Sequence[tuple[int, Callable[[], Accumulator], Callable[[Frame], Hashable | None]]]
    """For each aggregate its place, a factory of accumulators, and the accumulated value."""
    after: Sequence[tuple[int, Value] | Condition]
    """Bindings and conditions after the aggregates (SELECT expressions, HAVING), in order."""


class Groups(Stage):
    """GROUP BY: one row for each group, updated by the changes and never recomputed."""

    def __init__(self, graph: LiveGraph, constants: Frame, grouping: Grouping) -> None:
        """`constants`: a frame in which only constants are bound."""
        self._dictionary = graph.dictionary
        self._constants = constants
        self._grouping = grouping
        self._groups: dict[Row, _Group] = {}
        self._held = 0

    def start(self) -> Weights:
        """See `Stage`. Without keys there is one group even for empty input (SPARQL 1.1 Query, 18.2.4.1)."""
        if self._grouping.keys:
            return Bag()
        group = self._groups[()] = self._new()
        group.row = self._row((), group)
        return Bag() if group.row is None else Bag({self._retained(group.row): 1})

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        keys, aggregates = self._grouping.keys, self._grouping.aggregates
        touched: dict[Row, _Group] = {}
        for row, weight in weights.items():
            key = tuple([row[place] for place in keys])
            group = touched.get(key)
            if group is None:
                group = self._groups.get(key)
                if group is None:
                    group = self._groups[key] = self._new()
                    retain(self._dictionary, key)
                touched[key] = group
            # The size may be negative for a moment: removals can come before additions of the same change.
            group.size += weight
            frame = list(row)
            for accumulator, (_, _, value) in zip(group.accumulators, aggregates, strict=True):
                accumulator.add(value(frame), weight)
        out: Weights = Bag()
        for key, group in touched.items():
            before = group.row
            # Without keys, the only group exists even for empty input.
            gone = not group.size and bool(keys)
            self._held -= group.held
            group.row = None if gone else self._row(key, group)
            group.held = 0 if gone else self._bytes(key, group)
            self._held += group.held
            if group.row == before:
                continue
            if before is not None:
                out.add(before, -1)
                release(self._dictionary, before)
            if group.row is not None:
                out.add(self._retained(group.row), 1)
        for key, group in touched.items():
            if not group.size and keys:
                del self._groups[key]
                release(self._dictionary, key)
        return out

    def size(self) -> int:
        """See `Stage`."""
        return len(self._groups)

    def held(self) -> int:
        """See `Stage`."""
        return self._held

    def _bytes(self, key: Row, group: _Group) -> int:
        rows = row_bytes(self._dictionary, key) + (0 if group.row is None else row_bytes(self._dictionary, group.row))
        return rows + sum([accumulator.held() for accumulator in group.accumulators])

    def release(self) -> None:
        """See `Stage`."""
        for key, group in self._groups.items():
            release(self._dictionary, key)
            if group.row is not None:
                release(self._dictionary, group.row)
        self._groups.clear()
        self._held = 0

    def _new(self) -> _Group:
        return _Group(0, [new() for _, new, _ in self._grouping.aggregates], None)

    def _row(self, key: Row, group: _Group) -> Row | None:
        frame: list[int | None] = list(self._constants)
        for place, term_id in zip(self._grouping.keys, key, strict=True):
            frame[place] = term_id
        for accumulator, (place, _, _) in zip(group.accumulators, self._grouping.aggregates, strict=True):
            result = accumulator.result()
            frame[place] = None if result is None else self._dictionary.intern(result)
        for step in self._grouping.after:
            if isinstance(step, tuple):
                place, value = step
                frame[place] = value(frame)
            elif not step(frame):
                return None
        return tuple(frame)

    def _retained(self, row: Row) -> Row:
        retain(self._dictionary, row)
        return row


class Ask(Stage):
    """ASK: one row that says whether there is any solution."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._count = 0

    def start(self) -> Weights:
        """See `Stage`."""
        return Bag({self._answer(there=False): 1})

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`."""
        before = self._count
        self._count += sum(weights.values())
        # Only the first and the last solution change the answer.
        if bool(before) == bool(self._count):
            return Bag()
        return Bag({self._answer(there=bool(before)): -1, self._answer(there=bool(self._count)): 1})

    def _answer(self, *, there: bool) -> Row:
        return (self._dictionary.intern(BOOLEANS[there]),)


BOOLEANS = tuple(ox.Literal(text, datatype=ox.NamedNode(XSD + "boolean")) for text in ("false", "true"))


class ConstructTemplate(Stage):
    """CONSTRUCT: the triples of its template for each solution.

    The labels of the template's blank nodes derive from the solution, so they are stable while the solution exists.
    """

    def __init__(self, graph: LiveGraph, template: Sequence[Places], fresh: Sequence[int]) -> None:
        """`fresh`: places of the template's blank nodes."""
        self._graph = graph
        self._template = template
        self._fresh = fresh
        self._copies: Bag[Row] = Bag()
        self._held = 0

    def change(self, weights: Mapping[Row, int]) -> Weights:
        """See `Stage`. The weight of a triple is the number of its derivations."""
        out: Weights = Bag()
        for row, weight in weights.items():
            # Without blank nodes the solutions need not be retained: the weights of triples are linear in those of
            # solutions.
            if not self._fresh:
                self._add(list(row), weight, out)
                continue
            after = self._copies.add(row, weight)
            before = after - weight
            if before:
                self._held -= row_bytes(self._graph.dictionary, row)
                release(self._graph.dictionary, row)
            if after:
                retain(self._graph.dictionary, row)
                self._held += row_bytes(self._graph.dictionary, row)
            # A solution with multiplicity n has n sets of blank nodes, numbered by `copy`.
            for copy in range(min(before, after), max(before, after)):
                frame = list(row)
                for place in self._fresh:
                    frame[place] = self._graph.dictionary.intern(self._blank(row, place, copy))
                self._add(frame, 1 if after > before else -1, out)
        return out

    def size(self) -> int:
        """See `Stage`."""
        return len(self._copies)

    def held(self) -> int:
        """See `Stage`."""
        return self._held

    def release(self) -> None:
        """See `Stage`."""
        for row in self._copies:
            release(self._graph.dictionary, row)
        self._copies.clear()
        self._held = 0

    def _add(self, frame: Frame, weight: int, out: Weights) -> None:
        for s, p, o, _ in self._template:
            triple = (frame[s], frame[p], frame[o])
            # Triples with unbound or illegal terms are left out (SPARQL 1.1 Query, 16.2).
            if None not in triple and self._graph.legal((*triple, DEFAULT_GRAPH)):  # type: ignore[arg-type]
                out.add(triple, weight)

    def _blank(self, row: Row, place: int, copy: int) -> ox.BlankNode:
        terms = self._graph.dictionary.terms
        # From the terms, not their ids: the labels must be the same after a restart.
        solution = " ".join("" if cell is None else str(terms[cell]) for cell in row)
        return ox.BlankNode("c" + hashlib.sha256(f"{place} {copy} {solution}".encode()).hexdigest()[:32])


def flow(stages: Sequence[Stage], weights: Weights, *, start: bool) -> Weights:
    """Pass solutions through the stages in order, and return rows. `start`: they are the first ones."""
    for stage in stages:
        first = stage.start() if start else None
        weights = stage.change(weights)
        if first:
            weights.merge(first)
    return weights


def long_texts(dictionary: Dictionary, weights: Mapping[tuple[int | None, ...], int]) -> int:
    """Return the characters of the long terms in rows, multiplied by their weights."""
    long = dictionary.long
    return sum(abs(weight) * long[cell] for row, weight in weights.items() for cell in row if cell in long)


def row_bytes(dictionary: Dictionary, row: Sequence[int | None]) -> int:
    """Return the approximate bytes of a retained row. Long terms count, even if the graph contains them as well."""
    held = _ROW + _CELL * len(row)
    if long := dictionary.long:
        held += sum([long[cell] for cell in row if cell in long])
    return held


def retain(dictionary: Dictionary, row: Sequence[int | None]) -> None:
    """Add references to the terms of a row."""
    for cell in row:
        if cell is not None:
            dictionary.retain(cell)


def release(dictionary: Dictionary, row: Sequence[int | None]) -> None:
    """Release the references to the terms of a row."""
    for cell in row:
        if cell is not None:
            dictionary.release(cell)
