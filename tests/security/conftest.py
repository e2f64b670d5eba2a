"""A gateway with security."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from secured import House, settings

from edge.gateway import Gateway
from edge.security.store import Store

Secured = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture(autouse=True)
def all_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all client files that a test opens in addition to the gateway's:

    Python 3.13 warns of each that stays open.
    """
    opened: list[Store] = []
    begin = Store.__init__

    def noted(store: Store, data_dir: Path) -> None:
        begin(store, data_dir)
        opened.append(store)

    monkeypatch.setattr(Store, "__init__", noted)
    yield
    for store in opened:
        store.close()


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
