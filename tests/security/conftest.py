"""A gateway with security."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from secured import Harness, settings

from edge.gateway import Gateway
from edge.security.client_database import ClientDatabase
from tests.support.signing_keys import shared_keys

Secured = Callable[..., AbstractAsyncContextManager[Harness]]


@pytest.fixture(autouse=True, scope="module")
def few_keys() -> Iterator[None]:
    with shared_keys():
        yield


@pytest.fixture(autouse=True)
def all_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close all client files that a test opens in addition to the gateway's:

    Python 3.13 warns of each that stays open.
    """
    opened: list[ClientDatabase] = []
    begin = ClientDatabase.__init__

    def noted(store: ClientDatabase, data_dir: Path) -> None:
        begin(store, data_dir)
        opened.append(store)

    monkeypatch.setattr(ClientDatabase, "__init__", noted)
    yield
    for store in opened:
        store.close()


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """`async with secured(token_lifetime=2) as harness`."""

    @asynccontextmanager
    async def start(**security: Any) -> AsyncIterator[Harness]:
        async with Gateway(settings(tmp_path / "data", **security)) as gateway:
            yield Harness(gateway)

    return start


@pytest.fixture
async def harness(secured: Secured) -> AsyncIterator[Harness]:
    async with secured() as harness:
        yield harness
