"""VALUES with many rows: rows that agree with the bound variables are looked up in an index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final

from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import Operator
from edge.engine.store.graph import LiveGraph
from edge.protocol.results import Term

Row = tuple[Term | None, ...]
"""Terms by column; None: UNDEF."""

_INDEXES: Final = 8
"""Indexes retained at a time, for different sets of bound columns."""
_BUILT: Final = 4
"""Rows added to an index in one step."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows with values in the same columns, indexed by their values in the bound columns."""

    key: Callable[[Sequence[Term | None]], object]
    """Returns a row's values in the bound columns."""
    free: tuple[tuple[int, int], ...]
    """Places and columns of the unbound columns."""
    index: dict[object, list[Row]]
    size: int


class ValuesIndex(Operator):
    """Rows of constants. The operator contains them as terms, so frames need not contain all of them."""

    __slots__ = ("_budget", "_by_columns", "_dictionary", "_frame", "_parts", "_rows", "places")

    def __init__(self, graph: LiveGraph, places: Sequence[int], rows: Sequence[Sequence[Term | int | None]]) -> None:
        """`places` of the variables. Cells are terms in value form, places of open constants, or None for UNDEF."""
        self._dictionary = graph.dictionary
        self._budget = graph.budget
        self.places = places
        self._rows = [tuple(row) for row in rows]
        open_ = any(isinstance(cell, int) for row in self._rows for cell in row)
        self._by_columns = None if open_ else _by_columns(self._rows)  # type: ignore[arg-type]
        """Rows by the columns with values; None: open constants, so they depend on the frame."""
        self._frame: Frame | None = None
        """The frame whose open constants were read. They never change within a frame."""
        self._parts: dict[tuple[bool, ...], list[_Part]] = {}

    def prepare(self, bound: Iterable[Collection[int | None]]) -> None:
        """Build the indexes for frames in which these places are bound.

        The thread that compiles the plan calls it, so that the writer thread need not build them.
        """
        if self._by_columns is None:
            return
        masks = dict.fromkeys(tuple([place in places for place in self.places]) for places in bound)
        # More would be evicted again by the next `_split`.
        for mask in islice(masks, _INDEXES):
            self._parts[mask] = self._indexed([], mask)

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        terms, intern = self._dictionary.terms, self._dictionary.intern_value
        budget = self._budget
        given = [None if (term_id := frame[place]) is None else terms[term_id] for place in self.places]
        for part in self._split(frame, ()):
            budget.spend(1)
            for row in part.index.get(part.key(given), ()):
                # Inline instead of `spend`, which is slower.
                budget.left = left = budget.left - 1
                if left < 0:
                    raise budget.spent()
                for place, column in part.free:
                    frame[place] = intern(row[column])  # type: ignore[arg-type]
                yield
            # The frame is shared by all operators of the plan, so unbound places must be empty again.
            for place, _ in part.free:
                frame[place] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self.narrowed(0.0, frame, ())

    def narrowed(self, cost: float, frame: Frame, places: Collection[int]) -> float:
        """See `Operator`. Returns the average number of rows per look-up."""
        return sum(part.size / len(part.index) for part in self._split(frame, places))

    def _split(self, frame: Frame, places: Collection[int]) -> list[_Part]:
        """Return the rows for a frame in which these places are bound as well."""
        # Open constants differ between frames, so their indexes are valid for one frame only.
        if self._by_columns is None and frame is not self._frame:
            self._frame = frame
            self._parts.clear()
        bound = tuple([frame[place] is not None or place in places for place in self.places])
        parts = self._parts.get(bound)
        if parts is None:
            # Charged before the index is built, so that an exhausted budget saves the work.
            self._budget.spend(len(self._rows) // _BUILT)
            if len(self._parts) >= _INDEXES:
                del self._parts[next(iter(self._parts))]
            parts = self._parts[bound] = self._indexed(frame, bound)
        return parts

    def _indexed(self, frame: Frame, bound: Sequence[bool]) -> list[_Part]:
        found = self._by_columns
        if found is None:
            terms = self._dictionary.terms
            found = _by_columns(
                [
                    tuple([terms[frame[cell]] if isinstance(cell, int) else cell for cell in row])  # type: ignore[index]
                    for row in self._rows
                ]
            )
        return [self._part(columns, bound, rows) for columns, rows in found.items()]

    def _part(self, columns: Sequence[int], bound: Sequence[bool], rows: list[Row]) -> _Part:
        known = [column for column in columns if bound[column]]
        key: Callable[[Sequence[Term | None]], object] = itemgetter(*known) if known else _nothing
        index: dict[object, list[Row]] = {}
        if known:
            for row in rows:
                value = key(row)
                same = index.get(value)
                if same is None:
                    index[value] = [row]
                else:
                    same.append(row)
        else:
            index[()] = rows
        return _Part(key, tuple((self.places[c], c) for c in columns if not bound[c]), index, len(rows))


def _by_columns(rows: Sequence[Row]) -> dict[tuple[int, ...], list[Row]]:
    """Return rows by the columns in which they have values."""
    every = tuple(range(len(rows[0])))
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        # UNDEF matches anything (SPARQL 1.1 Query, section 10), so rows with UNDEF have indexes of their own.
        columns = tuple([column for column in every if row[column] is not None]) if None in row else every
        found.setdefault(columns, []).append(row)
    return found


def _nothing(row: Sequence[Term | None]) -> object:
    return ()
