"""Fixtures for the tests of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scheduler_harness import WAIT, House
from timer_machine import Box


@pytest.fixture
def open_house() -> Iterator[Callable[..., House]]:
    houses: list[House] = []

    def open_(directory: Path | None = None, **settings: object) -> House:
        houses.append(House(directory, **settings))
        return houses[-1]

    yield open_
    for house in houses:
        house.door.set()
        assert house.scheduler.close(WAIT)


@pytest.fixture
def make_box(tmp_path: Path) -> Iterator[Callable[..., Box]]:
    with contextlib.ExitStack() as stack:

        def make(directory: Path | None = tmp_path / "data", **settings: Any) -> Box:
            made = Box(directory, **settings)
            stack.callback(lambda: made.engine.close())
            return made

        yield make


@pytest.fixture
def box(make_box: Callable[..., Box]) -> Box:
    return make_box()
