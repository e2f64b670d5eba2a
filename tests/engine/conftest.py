"""Fixtures for the tests of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scheduler_harness import WAIT, Harness
from timer_machine import Box


@pytest.fixture
def open_harness() -> Iterator[Callable[..., Harness]]:
    harnesses: list[Harness] = []

    def open_(directory: Path | None = None, **settings: object) -> Harness:
        harnesses.append(Harness(directory, **settings))
        return harnesses[-1]

    yield open_
    for harness in harnesses:
        harness.door.set()
        assert harness.scheduler.close(WAIT)


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
