"""Garbage collection: a full collection runs if connections can explain the growth, otherwise once an hour."""

from __future__ import annotations

from edge.garbage import CycleCollection

START = 1_000_000
"""Blocks of memory in use at the start."""


class Machine:
    """A process with memory and time."""

    def __init__(self) -> None:
        self.blocks = START
        self.now = 0.0
        self.collected = 0
        self.cycle_collection = CycleCollection(self._collect, lambda: self.blocks, lambda: self.now)
        self.cycle_collection._note()

    def _collect(self) -> None:
        self.collected += 1


def test_growth_without_connections_is_not_searched() -> None:
    machine = Machine()
    for _ in range(100):
        machine.blocks += START
        machine.cycle_collection.connected()
        assert not machine.cycle_collection.look()


def test_growth_that_connections_explain_is_searched() -> None:
    machine = Machine()
    for _ in range(2_000):
        machine.cycle_collection.connected()
        machine.blocks += 150
    assert machine.cycle_collection.look()
    assert not machine.cycle_collection.look(), "nothing has grown since"


def test_connections_without_garbage_start_no_search() -> None:
    machine = Machine()
    for _ in range(100_000):
        machine.cycle_collection.connected()
    assert not machine.cycle_collection.look()


def test_all_objects_are_searched_once_an_hour() -> None:
    machine = Machine()
    machine.now = 3599.0
    assert not machine.cycle_collection.look()
    machine.now = 3601.0
    assert machine.cycle_collection.look()
    assert not machine.cycle_collection.look()
