"""Evaluations: the queries that one update has evaluated anew, in turn or beside each other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

import pyoxigraph as ox

from edge.engine.evaluator import Evaluator, World
from edge.engine.frameless import frameless
from edge.engine.tables import Table

Outcome = Table | Exception
"""What was read, or why it could not be."""


class Pool(Protocol):
    """Who evaluates."""

    @property
    def width(self) -> int:
        """How many evaluations can run at a time."""

    def begin(self, task: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """Have something done, now or later, here or on another thread; what is returned waits for the outcome."""


class InTurn:
    """Evaluates when the outcome is asked for, on the thread that asks."""

    width = 1

    def begin(self, task: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """See `Pool`."""
        return task


def begin_all(evaluators: Collection[Evaluator], pool: Pool, world: World, now: int) -> list[Callable[[], Outcome]]:
    """Have queries evaluated, all on the state that the mirror is in. Returns what waits for the outcome of each."""
    kept = pool.width
    wanted = min(kept, len(evaluators))
    stores = world.mirror.open_many(wanted, kept)
    begin = pool.begin if wanted > 1 else InTurn().begin
    return [begin(partial(_attempt, evaluator, stores, world, now)) for evaluator in evaluators]


def _attempt(evaluator: Evaluator, stores: list[ox.Store], world: World, now: int) -> Outcome:
    """Read a result from a store that nobody reads now. What is raised is returned, fit for another thread."""
    store = stores.pop()
    try:
        return world.read(evaluator, store, now)
    except Exception as error:  # noqa: BLE001  whoever asks for the outcome decides what it means
        return frameless(error)
    finally:
        stores.append(store)
