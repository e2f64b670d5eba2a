"""One gateway for all messages of a module, and another client of the same gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.concurrent_clients import Neighbour, neighbour
from tests.fuzz.fuzz_target import House, running


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("house")) as house:
        yield house


@pytest.fixture(scope="module")
def beside(request: pytest.FixtureRequest, house: House) -> Iterator[Neighbour]:
    """Return a client of the gate that the module names in `GATE`."""
    with neighbour(house, request.module.GATE) as found:
        yield found
