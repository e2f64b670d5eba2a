"""The subscription processing unit (SPU): one query with its constants, and those who subscribed to it.

There are two kinds. A boosted one is moved by the delta rules and keeps nothing but what its stages need; the other
evaluates its query anew when the LUTT is hit, and compares with the table that it keeps, as text.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from edge.engine.evaluator import Evaluator, World
from edge.engine.family import Family, every_solution
from edge.engine.general import too_long, too_many
from edge.engine.lutt import Dependencies, Key
from edge.engine.operators.stages import Groups, Row, Stage, Weights, add_weight, long_texts, release, retain
from edge.engine.query_plans import Singular
from edge.engine.requests import Delta, Notification, Sink, SubscribeFailed
from edge.engine.tables import Lines, Table, rows_of
from edge.protocol import results
from edge.protocol.errors import ResultTooLarge

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Subscriber:
    """One subscription: where its notifications go, and how many it has had."""

    spuid: str
    alias: str | None
    sink: Sink
    sequence: int = 0

    def notify(self, delta: Delta) -> None:
        """Send the next notification."""
        self._send(Notification(self.spuid, self.alias, self.sequence, delta))
        self.sequence += 1

    def fail(self, description: str) -> None:
        """Say that the query could not be evaluated."""
        self._send(SubscribeFailed(self.spuid, self.alias, description))

    def _send(self, item: Notification | SubscribeFailed) -> None:
        try:
            self.sink(item)
        except Exception:  # noqa: BLE001  a sink's fault is its own: the update is done, and the other subscribers are to be told
            _log.exception("notification lost by a fault of its receiver")


class Spu(ABC):
    """Equal query and dataset, one SPU: what it tells is computed once, whoever asked for it."""

    __slots__ = ("subscribers",)

    def __init__(self) -> None:
        self.subscribers: dict[str, Subscriber] = {}

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The columns of the result."""

    @abstractmethod
    def result(self, world: World) -> Weights:
        """The whole result as it is: what a new subscriber is told. Raises `EdgeError`."""

    @abstractmethod
    def end(self, world: World) -> None:
        """Let go of everything."""

    @property
    @abstractmethod
    def kept(self) -> int:
        """How many rows or groups it keeps."""

    def delta(self, world: World, told: Weights) -> Delta:
        """Changed rows as terms."""
        terms = world.graph.dictionary.terms
        added: list[results.Row] = []
        removed: list[results.Row] = []
        for row, weight in told.items():
            decoded = tuple([None if cell is None else terms[cell] for cell in row])
            if weight > 0:
                added += (decoded,) * weight
            else:
                removed += (decoded,) * -weight
        return Delta(self.variables, tuple(added), tuple(removed))


class BoostedSpu(Spu):
    """A member of a family."""

    __slots__ = ("_stages", "family", "open")

    def __init__(self, family: Family, open_: Row, world: World) -> None:
        """`open_`: the constants that the family leaves open. The SPU begins with `begin`."""
        super().__init__()
        self.family = family
        self.open = open_
        self._stages: Sequence[Stage] = family.plan.stages(family.frame(0, open_))
        retain(world.graph.dictionary, open_)

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self.family.plan.variables

    def begin(self, world: World) -> Weights:
        """Evaluate the query. Returns the whole result. Raises `ResultTooLarge`."""
        return self._whole(self._stages, world)

    def result(self, world: World) -> Weights:
        """See `Spu`."""
        stages = self.family.plan.stages(self.family.frame(0, self.open))
        try:
            return self._whole(stages, world)
        finally:
            for stage in stages:
                stage.release()

    def _whole(self, stages: Sequence[Stage], world: World) -> Weights:
        solutions = every_solution(self.family, self.open, world.rules)
        if world.graph.dictionary.long:
            self._check_reading(solutions)
        rows = _flow(stages, solutions, start=True)
        if world.graph.dictionary.long:
            _check_length(rows, world)
        return rows

    def move(self, world: World, weights: Weights) -> Weights:
        """Take in changed solutions, or none of them. Returns the changed rows. Raises `ResultTooLarge`.

        Nothing can stop it half way: the limits of the evaluation are lifted.
        """
        long, effort = world.graph.dictionary.long, world.graph.effort
        if long:
            self._check_reading(weights)
        effort.refusal = None
        told = self.take(weights)
        try:
            if effort.refusal is not None:
                raise effort.refusal
            if any(stage.size() > world.rules.max_solutions for stage in self._stages):
                raise too_many(world.rules)
            if long:
                _check_length(told, world)
        except ResultTooLarge:
            self.take({row: -weight for row, weight in weights.items()})
            raise
        return told

    def _check_reading(self, weights: Weights) -> None:
        """Whether all long texts of the solutions can be read, as aggregates do. Raises `ResultTooLarge`."""
        effort = self.family.effort
        reads = any(isinstance(stage, Groups) for stage in self._stages)
        if reads and effort.reading(long_texts(self.family.dictionary, weights)) > effort.most:
            raise effort.spent()

    def take(self, weights: Weights) -> Weights:
        """Take in changed solutions, however many are kept then: also to take back what was taken in."""
        return _flow(self._stages, weights, start=False)

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return sum(stage.size() for stage in self._stages)

    def end(self, world: World) -> None:
        """See `Spu`."""
        for stage in self._stages:
            stage.release()
        release(world.graph.dictionary, self.open)


def _check_length(rows: Weights, world: World) -> None:
    """Whether rows can be held as text. Raises `ResultTooLarge`."""
    if long_texts(world.graph.dictionary, rows) > world.rules.longest_result:
        raise too_long(world.rules)


def _flow(stages: Sequence[Stage], weights: Weights, *, start: bool) -> Weights:
    for stage in stages:
        first = stage.start() if start else {}
        weights = stage.change(weights)
        for row, weight in first.items():
            add_weight(weights, row, weight)
    return weights


class ReevaluatedSpu(Spu):
    """A query without a delta rule, or one that is not to be boosted."""

    __slots__ = ("_header", "_lines", "_stages", "_variables", "depends", "evaluator", "query")

    def __init__(self, query: Singular, evaluator: Evaluator, table: Table, world: World) -> None:
        """`table`: the first that was read. The SPU begins with `begin`."""
        super().__init__()
        self.query = query
        self.evaluator = evaluator
        self._header = table.header
        self._variables = evaluator.variables(table)
        self._lines = table.lines
        self._stages = evaluator.stages(world.graph, table)
        self.depends = Dependencies((), graph_names=False)
        """What it is watched for."""

    @property
    def variables(self) -> tuple[str, ...]:
        """See `Spu`."""
        return self._variables

    def begin(self, world: World) -> Weights:
        """The whole result, to be asked for once."""
        return _flow(self._stages, rows_of(world.graph.dictionary, self._header, self._lines), start=True)

    def result(self, world: World) -> Weights:
        """See `Spu`."""
        stages = self.evaluator.stages(world.graph, Table(self._header, self._lines))
        try:
            return _flow(stages, rows_of(world.graph.dictionary, self._header, self._lines), start=True)
        finally:
            for stage in stages:
                stage.release()

    def difference(self, table: Table) -> Lines:
        """From the lines that are kept to those of another table."""
        old, new = self._lines, table.lines
        if new == old:
            return {}
        changed = {line: count - old.get(line, 0) for line, count in new.items() if old.get(line) != count}
        changed.update((line, -count) for line, count in old.items() if line not in new)
        return changed

    def take(self, world: World, changed: Lines) -> Weights:
        """Take in changed lines. Returns the changed rows of the result."""
        lines = self._lines
        for line, weight in changed.items():
            count = lines.get(line, 0) + weight
            if count:
                lines[line] = count
            else:
                del lines[line]
        return _flow(self._stages, rows_of(world.graph.dictionary, self._header, changed), start=False)

    def keys(self, world: World) -> list[Key]:
        """Under what it stands in the LUTT."""
        return [watch.key(world.graph) for watch in self.depends.watches]

    @property
    def kept(self) -> int:
        """See `Spu`."""
        return len(self._lines)

    def end(self, world: World) -> None:
        """See `Spu`."""
        for stage in self._stages:
            stage.release()
