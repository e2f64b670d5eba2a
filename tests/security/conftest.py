"""A gateway with security."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from secured import House, settings

from edge.gateway import Gateway

Secured = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """`async with secured(token_lifetime=2) as house`."""

    @asynccontextmanager
    async def start(**security: Any) -> AsyncIterator[House]:
        async with Gateway(settings(tmp_path / "data", **security)) as gateway:
            yield House(gateway)

    return start


@pytest.fixture
async def house(secured: Secured) -> AsyncIterator[House]:
    async with secured() as house:
        yield house
