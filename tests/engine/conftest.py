"""What the tests of the engine have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scheduler_house import WAIT, House


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
