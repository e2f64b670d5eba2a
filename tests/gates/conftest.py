"""A real engine with both gates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from gate_server import Gateway, running

from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine


@pytest.fixture
def engine() -> Iterator[Any]:
    engine = open_engine(None, EngineSettings())
    yield engine
    engine.close()


@pytest.fixture
def serve(engine: Any) -> Any:
    """`async with serve(ws=..., http=..., views=...) as gateway`, for tests that need other settings."""

    def start(**options: Any) -> Any:
        return running(engine, **options)

    return start


@pytest.fixture
async def gateway(engine: Any) -> AsyncIterator[Gateway]:
    async with running(engine) as gateway:
        yield gateway
