"""Large changes of a simulated gateway: prepared in pieces, and applied completely or not at all."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from edge.engine.requests import UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler

PARTS = 30
_PADDING = "\n# " + "a text that is so long that Oxigraph reads it " * 500
PROPERTY = "urn:part"


@contextlib.contextmanager
def small_pieces() -> Iterator[None]:
    """Stage changes from 20 quads on, in pieces of 8 quads each."""
    limits = {
        "updates.staged_change._PIECE": 8,
        "updates.staged_change._MOST_STALE": 4,
        "updates.attempts.STAGED_FROM": 20,
        "store.index_merge._PIECE": 4,
        "store.triple_index._MOVED": 8,
    }
    with contextlib.ExitStack() as stack:
        for name, value in limits.items():
            stack.enter_context(mock.patch(f"edge.engine.{name}", value))
        yield


@dataclass
class Batch:
    """A set of quads, and the number of them that may be present."""

    number: int
    future: Future[Any]
    possible: set[int]
    wanted: int
    """The number after the update that is in progress."""
    disturbed: set[int] = field(default_factory=set)
    """Quads that another client has inserted."""

    def text(self, verb: str, first: int = 0) -> str:
        triples = [f"<urn:batch:{self.number}> <{PROPERTY}> {part}" for part in range(first, first + PARTS)]
        return f"{verb} DATA {{ {' . '.join(triples)} }}{_PADDING}"


class LargeChanges:
    """A client that inserts and removes batches one after the other, and another client that interferes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._batches: list[Batch] = []
        self._waiting: Batch | None = None

    def send(self, scheduler: Scheduler) -> None:
        """Insert or remove a batch. Until the answer arrives, another client inserts a quad of it."""
        if self._waiting is not None:
            part = self._chance.randrange(PARTS)
            text = f"INSERT DATA {{ <urn:batch:{self._waiting.number}> <{PROPERTY}> {part} }}"
            if self._waiting.wanted:  # otherwise the order of commits would decide whether the quad is present
                scheduler.update([UpdateRequest(text, source="disturber")])
                self._waiting.disturbed.add(part)
                self._waiting.possible.update(range(len(self._waiting.disturbed) + 1))
            return
        there = [batch for batch in self._batches if batch.possible == {PARTS}]
        if there and self._chance.random() < 0.5:
            batch, verb, wanted = self._chance.choice(there), "DELETE", 0
        else:
            batch, verb, wanted = Batch(len(self._batches), Future(), {0}, 0), "INSERT", PARTS
            self._batches.append(batch)
        batch.wanted = wanted
        batch.future = scheduler.update([UpdateRequest(batch.text(verb), source="large")])
        batch.possible.add(wanted)
        self._waiting = batch
        while scheduler._compile_queue._running or scheduler._compile_queue._waiting:
            time.sleep(0.0001)

    def listen(self, refused: Callable[[Future[Any]], bool]) -> None:
        """Process the answer, if there is one."""
        batch = self._waiting
        if batch is None or not batch.future.done():
            return
        self._waiting = None
        if batch.future.exception() is None:
            batch.possible = {batch.wanted}
        elif refused(batch.future):
            batch.possible.discard(batch.wanted)

    def forget(self) -> None:
        """The process has ended: unanswered changes may be present or not."""
        self._waiting = None

    def check(self, found: Mapping[str, Sequence[int]], *, at_rest: bool) -> None:
        """Check the batches. `found`: the present quads by their subject."""
        assert not at_rest or self._waiting is None, "a large change was not answered"
        for batch in self._batches:
            parts = found.get(f"urn:batch:{batch.number}", ())
            assert len(parts) in batch.possible, f"{len(parts)} of batch {batch.number} are there"
