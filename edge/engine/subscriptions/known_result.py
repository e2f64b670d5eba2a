"""The last result of a query that is re-evaluated: what its subscribers have, and the way from there to a later one.

Everything here runs outside the writer thread. Rows therefore go from text to terms without the dictionary of the live
graph, which belongs to the writer; a CONSTRUCT, whose template works on term ids, has a dictionary of its own.
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
from edge.protocol.results import Row

_LINE: Final = 110
"""Bytes that a line takes beside its characters, as measured."""
_TERM: Final = 200
"""Bytes that a dictionary takes for a term, as measured."""


class KnownResult:
    """A result as lines of text. One thread at a time may use it."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._header: bytes | None = None
        self._lines: Lines = {}
        self._graph: LiveGraph | None = None
        """Dictionary of the stages; its graph stays empty. None: the query has no stages."""
        self._stages: Sequence[Stage] = ()
        self.variables: tuple[str, ...] = ()
        """Columns of the result."""
        self.held = 0
        """Bytes that it takes, about."""
        self._before: Mapping[Row, int] | None = None
        """The result that subscribers have from the time when the query was incremental; None: they have the lines."""

    def go_on(self, variables: tuple[str, ...], rows: Mapping[Row, int]) -> None:
        """Begin with the result that the subscribers have: the next difference leads on from it."""
        self.variables, self._before = variables, rows

    @property
    def empty(self) -> bool:
        """Whether nothing was evaluated yet, so that the first difference is the whole result."""
        return self._header is None and self._before is None

    def __len__(self) -> int:
        """Number of different lines."""
        return len(self._lines)

    def move(self, table: ResultTable) -> Delta:
        """Replace the result by a later one. Returns the exact difference, the whole result the first time."""
        if self._header is None:
            self._begin(table)
        changed = difference(self._lines, table.lines)
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

    def _delta(
        self, changed: Mapping[bytes, int], stages: Sequence[Stage], before: Mapping[Row, int] | None = None
    ) -> Delta:
        rows = self._changed_rows(changed, stages)
        for row, count in (before or {}).items():
            rows[row] = rows.get(row, 0) - count
        return Delta.of(self.variables, rows)

    def _changed_rows(self, changed: Mapping[bytes, int], stages: Sequence[Stage]) -> dict[Row, int]:
        assert self._header is not None  # noqa: S101
        if self._graph is None:
            return _rows(self._header, changed)
        dictionary = self._graph.dictionary
        weights: Weights = rows_of(dictionary, self._header, changed)
        for stage in stages:
            weights = stage.change(weights)
        terms = dictionary.terms
        rows = {
            tuple([None if cell is None else terms[cell] for cell in row]): weight for row, weight in weights.items()
        }
        dictionary.sweep()
        return rows


def difference(old: Lines, new: Lines) -> Lines:
    """Return the lines that lead from one result to another, with their signed numbers."""
    if new == old:
        return {}
    changed = {line: count - old.get(line, 0) for line, count in new.items() if old.get(line) != count}
    changed.update((line, -count) for line, count in old.items() if line not in new)
    return changed


def _rows(header: bytes, lines: Mapping[bytes, int]) -> dict[Row, int]:
    """Lines as rows of terms. Lines that differ in spelling only are one row."""
    rows: dict[Row, int] = {}
    if lines:
        for cells, count in zip(decoded(header, lines), lines.values(), strict=True):
            row = tuple([None if cell is None else canonical(cell) for cell in cells])
            rows[row] = rows.get(row, 0) + count
    return rows
