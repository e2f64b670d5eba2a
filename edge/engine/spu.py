"""The subscription processing unit (SPU): the current result of one query, and those who subscribed to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edge.engine.evaluator import Bag, Evaluator, IdRow, World
from edge.engine.lutt import Key
from edge.engine.requests import Delta, Notification, Sink, SubscribeFailed
from edge.protocol.results import Row


@dataclass(slots=True)
class Subscriber:
    """One subscription: where its notifications go, and how many it has had."""

    spuid: str
    alias: str | None
    sink: Sink
    sequence: int = 0

    def notify(self, delta: Delta) -> None:
        """Send the next notification."""
        self.sink(Notification(self.spuid, self.alias, self.sequence, delta))
        self.sequence += 1

    def fail(self, description: str) -> None:
        """Say that the query could not be evaluated."""
        self.sink(SubscribeFailed(self.spuid, self.alias, description))


@dataclass(frozen=True, slots=True)
class Change:
    """How an SPU's result changed, in term ids: enough to tell the subscribers, and to take it back."""

    added: Bag
    removed: Bag


@dataclass(eq=False, slots=True)
class Spu:
    """Equal query and dataset, one SPU: the result is computed once, whoever asked for it."""

    evaluator: Evaluator
    bag: Bag = field(default_factory=Counter)
    keys: list[Key] = field(default_factory=list)
    """Under which it stands in the LUTT."""
    graph_names: bool = False
    """Whether it also stands among those that depend on which named graphs exist."""
    subscribers: dict[str, Subscriber] = field(default_factory=dict)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of its result."""
        return self.evaluator.variables

    def refresh(self, world: World, now: int) -> Change:
        """Evaluate anew and move to the new result. Raises `EvaluationFailed`, and then nothing has moved."""
        new = self.evaluator.evaluate(world, now)
        change = Change(added=new - self.bag, removed=self.bag - new)
        self.apply(world, change)
        return change

    def apply(self, world: World, change: Change) -> None:
        """Move the result by a change."""
        dictionary = world.graph.dictionary
        for row in change.added:
            if row not in self.bag:
                for cell in row:
                    if cell is not None:
                        dictionary.retain(cell)
        self.bag.update(change.added)
        for row, count in change.removed.items():
            left = self.bag[row] - count
            if left:
                self.bag[row] = left
                continue
            del self.bag[row]
            for cell in row:
                if cell is not None:
                    dictionary.release(cell)

    def delta(self, world: World, change: Change) -> Delta:
        """A change as terms."""
        return Delta(self.variables, _decode(world, change.added), _decode(world, change.removed))


def inverse(change: Change) -> Change:
    """The change that undoes this one."""
    return Change(added=change.removed, removed=change.added)


def _decode(world: World, bag: Bag) -> tuple[Row, ...]:
    terms = world.graph.dictionary.terms

    def row(ids: IdRow) -> Row:
        return tuple(None if cell is None else terms[cell] for cell in ids)

    return tuple(decoded for ids, count in bag.items() for decoded in (row(ids),) * count)
