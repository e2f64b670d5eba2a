"""The subscription processing unit (SPU): the current result of one query, and those who subscribed to it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from edge.engine.delta import Bag, IdRow, Touched
from edge.engine.evaluator import Evaluator, World
from edge.engine.graph import Quad
from edge.engine.lutt import Dependencies, Key
from edge.engine.requests import Delta, Notification, Sink, SubscribeFailed
from edge.protocol.results import Row

_log = logging.getLogger(__name__)

_WORTH: Final = 16
"""Delta evaluation is given up for an update that touches more than this and a sixteenth of the result."""


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


@dataclass(frozen=True, slots=True)
class Change:
    """How an SPU's result changed, in term ids: enough to tell the subscribers, and to take it back."""

    added: Bag
    removed: Bag

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)

    def inverse(self) -> Change:
        """The change that undoes this one."""
        return Change(self.removed, self.added)


NOTHING: Final = Change(Counter(), Counter())


_UNWATCHED: Final = Dependencies((), graph_names=False)


@dataclass(eq=False, slots=True)
class Spu:
    """Equal query and dataset, one SPU: the result is computed once, whoever asked for it."""

    evaluator: Evaluator
    bag: Bag = field(default_factory=Counter)
    depends: Dependencies = _UNWATCHED
    """What it is watched for."""
    keys: list[Key] = field(default_factory=list)
    """Under which it stands in the LUTT."""
    subscribers: dict[str, Subscriber] = field(default_factory=dict)

    def whole(self) -> Change:
        """The result as a change from nothing: what a new subscriber is told."""
        return Change(Counter(dict.fromkeys(self.bag, 1)) if self.evaluator.distinct else self.bag, Counter())

    def touched(self, world: World, quads: Collection[Quad]) -> Touched | None:
        """The part of the result that changed quads can touch. None: the result is to be computed as a whole."""
        delta = self.evaluator.delta
        return None if delta is None else delta.touched(world.graph, quads, limit=_WORTH + len(self.bag) // _WORTH)

    def move(self, world: World, change: Change) -> Change:
        """Move the result by a change. Returns what the subscribers are to be told."""
        if not self.evaluator.distinct:
            self.apply(world, change)
            return change
        before = {row for row in (*change.added, *change.removed) if row in self.bag}
        self.apply(world, change)
        return Change(
            added=Counter(row for row in change.added if row not in before),
            removed=Counter(row for row in change.removed if row in before and row not in self.bag),
        )

    def apply(self, world: World, change: Change) -> None:
        """Move the result by a change, and hold on to the terms of its rows."""
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
        return Delta(self.evaluator.variables, _decode(world, change.added), _decode(world, change.removed))


def _decode(world: World, bag: Bag) -> tuple[Row, ...]:
    terms = world.graph.dictionary.terms

    def row(ids: IdRow) -> Row:
        return tuple(None if cell is None else terms[cell] for cell in ids)

    return tuple(decoded for ids, count in bag.items() for decoded in (row(ids),) * count)
