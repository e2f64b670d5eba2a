"""VALUES of many rows, with indexes: the rows that agree with the bound variables are looked up, not searched for."""

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
"""Indexes that are kept at a time, for different columns being bound."""
_BUILT: Final = 4
"""Rows that are put into an index in one step."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows that have values in the same columns, by their values in those that are bound."""

    key: Callable[[Sequence[Term | None]], object]
    """Of a row, the values in the columns that are bound."""
    free: tuple[tuple[int, int], ...]
    """The places and columns of the others."""
    index: dict[object, list[Row]]
    size: int


class ValuesIndex(Operator):
    """Rows of constants that stand in the operator as terms, so that no frame has to hold them all."""

    __slots__ = ("_by_columns", "_dictionary", "_effort", "_frame", "_parts", "_rows", "places")

    def __init__(self, graph: LiveGraph, places: Sequence[int], rows: Sequence[Sequence[Term | int | None]]) -> None:
        """`places` of the variables; cells are terms in value form, places of open constants, and None for UNDEF."""
        self._dictionary = graph.dictionary
        self._effort = graph.effort
        self.places = places
        self._rows = [tuple(row) for row in rows]
        open_ = any(isinstance(cell, int) for row in self._rows for cell in row)
        self._by_columns = None if open_ else _by_columns(self._rows)  # type: ignore[arg-type]
        """The rows by the columns that have values; None: there are open constants, so it depends on the frame."""
        self._frame: Frame | None = None
        """The frame of which the open constants were read: a frame's never change."""
        self._parts: dict[tuple[bool, ...], list[_Part]] = {}

    def prepare(self, bound: Iterable[Collection[int | None]]) -> None:
        """Build the indexes for frames in which these places are bound.

        To be called by the thread that compiles the plan, so that the writer, which evaluates it, need not build them.
        """
        if self._by_columns is None:
            return
        masks = dict.fromkeys(tuple([place in places for place in self.places]) for places in bound)
        for mask in islice(masks, _INDEXES):
            self._parts[mask] = self._indexed([], mask)

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        terms, intern = self._dictionary.terms, self._dictionary.intern_value
        effort = self._effort
        given = [None if (term_id := frame[place]) is None else terms[term_id] for place in self.places]
        for part in self._split(frame, ()):
            effort.spend(1)
            for row in part.index.get(part.key(given), ()):
                effort.left -= 1
                for place, column in part.free:
                    frame[place] = intern(row[column])  # type: ignore[arg-type]
                yield
            for place, _ in part.free:
                frame[place] = None

    def estimate(self, frame: Frame) -> float:
        """See `Operator`."""
        return self.narrowed(0.0, frame, ())

    def narrowed(self, cost: float, frame: Frame, places: Collection[int]) -> float:
        """See `Operator`: as many rows as one look-up finds on average."""
        return sum(part.size / len(part.index) for part in self._split(frame, places))

    def _split(self, frame: Frame, places: Collection[int]) -> list[_Part]:
        """The rows, for a frame in which these places are bound, too."""
        if self._by_columns is None and frame is not self._frame:
            self._frame = frame
            self._parts.clear()
        bound = tuple([frame[place] is not None or place in places for place in self.places])
        parts = self._parts.get(bound)
        if parts is None:
            self._effort.spend(len(self._rows) // _BUILT)
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
    """Rows by the columns in which they have values."""
    every = tuple(range(len(rows[0])))
    found: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        columns = tuple([column for column in every if row[column] is not None]) if None in row else every
        found.setdefault(columns, []).append(row)
    return found


def _nothing(row: Sequence[Term | None]) -> object:
    return ()
