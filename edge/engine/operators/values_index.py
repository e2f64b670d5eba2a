"""VALUES of many rows: those that agree with what is bound are looked up, not searched for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
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

    bound: tuple[int, ...]
    """Of the columns with values, those that are bound."""
    free: tuple[tuple[int, int], ...]
    """The places and columns of the others."""
    index: dict[tuple[Term | None, ...], list[Row]]
    size: int


class ValuesIndex(Operator):
    """Rows of constants that stand in the operator as terms, so that no frame has to hold them all."""

    __slots__ = ("_constants", "_dictionary", "_effort", "_frame", "_parts", "_places", "_rows")

    def __init__(self, graph: LiveGraph, places: Sequence[int], rows: Sequence[Sequence[Term | int | None]]) -> None:
        """`places` of the variables; cells are terms in value form, places of open constants, and None for UNDEF."""
        self._dictionary = graph.dictionary
        self._effort = graph.effort
        self._places = places
        self._rows = rows
        self._constants = not any(isinstance(cell, int) for row in rows for cell in row)
        self._frame: Frame | None = None
        """The frame of which the open constants were read: a frame's never change."""
        self._parts: dict[tuple[bool, ...], list[_Part]] = {}

    def solutions(self, frame: Frame) -> Iterator[None]:
        """See `Operator`."""
        terms, intern = self._dictionary.terms, self._dictionary.intern_value
        effort = self._effort
        given = [None if (term_id := frame[place]) is None else terms[term_id] for place in self._places]
        for part in self._split(frame, ()):
            effort.spend(1)
            for row in part.index.get(tuple([given[column] for column in part.bound]), ()):
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
        if not self._constants and frame is not self._frame:
            self._frame = frame
            self._parts.clear()
        bound = tuple([frame[place] is not None or place in places for place in self._places])
        parts = self._parts.get(bound)
        if parts is None:
            self._effort.spend(len(self._rows) // _BUILT)
            if len(self._parts) >= _INDEXES:
                self._parts.clear()
            parts = self._parts[bound] = self._indexed(frame, bound)
        return parts

    def _indexed(self, frame: Frame, bound: Sequence[bool]) -> list[_Part]:
        terms = self._dictionary.terms
        parts: dict[tuple[bool, ...], list[Row]] = {}
        for cells in self._rows:
            row = tuple([terms[frame[cell]] if isinstance(cell, int) else cell for cell in cells])  # type: ignore[index]
            parts.setdefault(tuple([cell is not None for cell in row]), []).append(row)
        return [self._part(defined, bound, rows) for defined, rows in parts.items()]

    def _part(self, defined: Sequence[bool], bound: Sequence[bool], rows: Sequence[Row]) -> _Part:
        columns = [column for column, there in enumerate(defined) if there]
        known = tuple(column for column in columns if bound[column])
        index: dict[tuple[Term | None, ...], list[Row]] = {}
        for row in rows:
            index.setdefault(tuple([row[column] for column in known]), []).append(row)
        return _Part(known, tuple((self._places[c], c) for c in columns if not bound[c]), index, len(rows))
