"""Start of an incremental subscription whose first result takes long: evaluated elsewhere, brought up to date here.

A forked process evaluates the patterns in a committed state. From that state on, the subscription is watched, and the
solutions that updates add or remove are collected. The result is linear in the solutions: those of the forked process
plus the collected ones yield the current result. The writer merges them piece by piece, between the requests of other
clients.

Rows pass from the forked process to the writer as text, because term ids may be reused in the meantime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.layout import Frame
from edge.engine.operators.stages import Row, Stage, Weights, flow, long_texts, release, retain
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import QueryRules, too_long, too_many
from edge.engine.queries.result_table import decoded, header_of
from edge.engine.requests import Delta
from edge.engine.subscriptions.pending_subscriber import PendingSubscriber
from edge.engine.subscriptions.plan_group import M, PlanGroup, every_solution
from edge.protocol import results
from edge.protocol.bag import Bag

PIECE: Final = 500
"""Solutions that the writer merges at a time: about 5 ms."""

_COUNT: Final = "count"
"""Column with the number of occurrences of a solution."""


class DeferredFirstResult:
    """One first result in progress. It belongs to the writer's thread."""

    def __init__(self, group: PlanGroup[M], open_: Row, stages: Sequence[Stage], pending: PendingSubscriber) -> None:
        """`open_`: the constants of the member of the plan group. `stages`: new stages, which an SPU without a result
        takes over.
        """
        self._variables = group.plan.variables
        self._base, self._columns = _columns(group, open_)
        self.stages = stages
        self.pending = [pending]
        """Subscribers that wait for the result."""
        self.over = False
        """Whether the evaluation has ended."""
        self._pieces: deque[Sequence[bytes]] = deque()
        self._changes: Weights = Bag()
        """Solutions that were added and removed since the state of the forked process."""
        self._rows: Bag[results.Row] = Bag()
        refresh = pending.refresh
        self._difference = None if refresh is None else Bag(refresh.since)
        """The rows minus those that the subscribers of a full refresh have; None for new subscribers."""
        self._started = False
        self._length = 0

    def found(self, pieces: Sequence[Sequence[bytes]]) -> None:
        """Record the result of the forked process."""
        self._pieces.extend(pieces)

    def change(self, world: World, weights: Mapping[Row, int]) -> None:
        """Collect the solutions that an update adds or removes."""
        dictionary, changes = world.graph.dictionary, self._changes
        for row, weight in weights.items():
            # References keep the ids of the collected rows from being used for other terms.
            known = row in changes
            changes.add(row, weight)
            if known and row not in changes:
                release(dictionary, row)
            elif not known and row in changes:
                retain(dictionary, row)

    def take(self, world: World) -> bool:
        """Merge one piece. Return whether the result is now that of the current graph. Raises `EdgeError`."""
        weights = self._read(world, self._pieces.popleft()) if self._pieces else self._taken_changes(world)
        changed = flow(self.stages, weights, start=not self._started)
        self._started = True
        if world.graph.dictionary.long:
            self._length += long_texts(world.graph.dictionary, changed)
        terms = world.graph.dictionary.terms
        rows = self._rows
        for ids, weight in changed.items():
            row = tuple([None if cell is None else terms[cell] for cell in ids])
            rows.add(row, weight)
            if self._difference is not None:
                self._difference.add(row, weight)
        limits = world.rules
        if any(size > limits.max_solutions for size in (len(rows), *(stage.size() for stage in self.stages))):
            raise too_many(limits)
        if self._length > limits.longest_result:
            raise too_long(limits)
        return not self._pieces and not self._changes

    def result(self) -> Delta:
        """Return the whole result."""
        return Delta.of(self._variables, self._rows.items())

    def difference(self) -> Delta:
        """Return the difference to the rows that the subscribers of the refresh have."""
        return Delta.of(self._variables, (self._difference or {}).items())

    def end(self, world: World) -> None:
        """End the evaluation and release its memory."""
        self.over = True
        for row in self._changes:
            release(world.graph.dictionary, row)
        self._changes.clear()
        self._pieces.clear()
        self._rows.clear()
        self._difference = None

    def _read(self, world: World, lines: Sequence[bytes]) -> Weights:
        """Return the solutions that `evaluate` wrote."""
        intern = world.graph.dictionary.intern
        weights: Weights = Bag()
        for cells, count in read_rows(lines, self._columns):
            row = self._base.copy()
            for place, cell in zip(self._columns, cells, strict=True):
                row[place] = None if cell is None else intern(cell)
            weights.add(tuple(row), count)
        return weights

    def _taken_changes(self, world: World) -> Weights:
        taken: Weights = Bag()
        for row in list(islice(self._changes, PIECE)):
            taken[row] = self._changes.pop(row)
            release(world.graph.dictionary, row)  # the ids are valid until the next sweep
        return taken


def evaluate(group: PlanGroup[M], open_: Row, rules: QueryRules) -> list[list[bytes]]:
    """Evaluate the patterns of a member, in the form that `DeferredFirstResult` reads. Raises `ResultTooLarge`."""
    _, columns = _columns(group, open_)
    return write_rows(every_solution(group, open_, rules), group.dictionary.terms, columns)


def write_rows(weights: Weights, terms: Sequence[results.Term], columns: Sequence[int]) -> list[list[bytes]]:
    """Return these columns of rows of ids as text, in pieces, with the number of occurrences of each row."""
    known: dict[int | None, bytes] = {None: b""}

    def line(row: Row, count: int) -> bytes:
        cells = []
        for place in columns:
            cell = row[place]
            # Terms repeat in a result, and the text of each comes from Oxigraph.
            text = known.get(cell)
            if text is None:
                assert cell is not None  # noqa: S101
                text = known[cell] = str(terms[cell]).encode()
            cells.append(text)
        return b"\t".join((*cells, b"%d" % count))

    lines = (line(row, count) for row, count in weights.items())
    return list(iter(lambda: list(islice(lines, PIECE)), []))


def read_rows(lines: Sequence[bytes], columns: Sequence[int]) -> Iterator[tuple[results.Row, int]]:
    """Yield the rows that `write_rows` wrote as terms, with the number of occurrences of each."""
    for *cells, count in decoded(header_of((*(f"p{place}" for place in columns), _COUNT)), lines):
        assert isinstance(count, ox.Literal)  # noqa: S101
        yield tuple(cells), int(count.value)


def _columns(group: PlanGroup[M], open_: Row) -> tuple[Frame, list[int]]:
    """Return a frame with the constants of a member, and the positions that differ between solutions."""
    frames = [group.frame(number, open_) for number in range(len(group.plan.alternatives))]
    base = frames[0]
    places = range(len(base))
    return base, [place for place in places if any(f[place] is None or f[place] != base[place] for f in frames)]
