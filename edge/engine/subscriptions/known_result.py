"""Last result of a re-evaluated query: the rows that its subscribers have, and the difference to a later result.

This module runs outside the writer thread. It therefore converts rows from text to terms without the dictionary of the
live graph, which belongs to the writer. A CONSTRUCT has its own dictionary, because its template works on term ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from edge.engine.operators.stages import Stage, Weights
from edge.engine.queries.evaluator import Evaluator
from edge.engine.queries.result_table import Lines, ResultTable, decoded, rows_of
from edge.engine.requests import Delta
from edge.engine.store.graph import LiveGraph
from edge.engine.store.terms import canonical
from edge.protocol.bag import Bag
from edge.protocol.results import Row

_LINE: Final = 110
"""Bytes that a line takes in addition to its characters, as measured."""
_TERM: Final = 200
"""Bytes that a dictionary takes for a term, as measured."""


class KnownResult:
    """A result as lines of text. One thread at a time may use it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._header: bytes | None = None
        self._lines: Lines = Bag()
        self._graph: LiveGraph | None = None
        """Owner of the dictionary of the stages; the graph itself stays empty. None if the query has no stages."""
        self._stages: Sequence[Stage] = ()
        self.variables: tuple[str, ...] = ()
        """Columns of the result."""
        self.held = 0
        """Approximate bytes of memory."""
        self._before: Bag[Row] | None = None
        """Result that subscribers have from the time of incremental evaluation; None if they have the lines."""

    def go_on(self, variables: tuple[str, ...], rows: Bag[Row]) -> None:
        """Start with the result that the subscribers have. The next difference continues from it."""
        self.variables, self._before = variables, rows

    @property
    def empty(self) -> bool:
        """Whether no evaluation has finished yet. The first difference is then the whole result."""
        return self._header is None and self._before is None

    def __len__(self) -> int:
        """Number of different lines."""
        return len(self._lines)

    def move(self, table: ResultTable) -> Delta:
        """Replace the result by a later one. Return the exact difference; the first time, the whole result."""
        if self._header is None:
            self._begin(table)
        changed = table.lines.since(self._lines)
        self._lines = table.lines
        before, self._before = self._before, None
        delta = self._delta(changed, self._stages, before)
        self.held = sum(map(len, table.lines)) + _LINE * len(table.lines)
        if self._graph is not None:
            dictionary = self._graph.dictionary
            self.held += _TERM * len(dictionary) + sum([stage.held() for stage in self._stages])
        return delta

    def whole(self) -> Delta:
        """Return the whole result."""
        if self._graph is None:
            return self._delta(self._lines, ())
        assert self._header is not None  # noqa: S101
        stages = self._evaluator.stages(self._graph, ResultTable(self._header, self._lines))
        # New stages have no state, so from all lines they produce the whole result.
        try:
            return self._delta(self._lines, stages)
        finally:
            for stage in stages:
                stage.release()

    def _begin(self, table: ResultTable) -> None:
        self._header = table.header
        self.variables = self._evaluator.variables(table)
        graph = LiveGraph()
        self._stages = self._evaluator.stages(graph, table)
        self._graph = graph if self._stages else None

    def _delta(self, changed: Mapping[bytes, int], stages: Sequence[Stage], before: Bag[Row] | None = None) -> Delta:
        rows = self._changed_rows(changed, stages)
        if before:
            rows.merge(before.inverse)
        return Delta.of(self.variables, rows.items())

    def _changed_rows(self, changed: Mapping[bytes, int], stages: Sequence[Stage]) -> Bag[Row]:
        assert self._header is not None  # noqa: S101
        if self._graph is None:
            return _rows(self._header, changed)
        dictionary = self._graph.dictionary
        weights: Weights = rows_of(dictionary, self._header, changed)
        for stage in stages:
            weights = stage.change(weights)
        terms = dictionary.terms
        rows = Bag(
            {tuple([None if cell is None else terms[cell] for cell in row]): weight for row, weight in weights.items()}
        )
        dictionary.sweep()
        return rows


def _rows(header: bytes, lines: Mapping[bytes, int]) -> Bag[Row]:
    """Return lines as rows of terms. Lines that differ only in spelling form one row."""
    rows: Bag[Row] = Bag()
    if lines:
        for cells, count in zip(decoded(header, lines), lines.values(), strict=True):
            rows.add(tuple([None if cell is None else canonical(cell) for cell in cells]), count)
    return rows
