"""One gateway for all messages of a module, and another client of the same gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.concurrent_clients import ConcurrentClient, open_client
from tests.fuzz.fuzz_target import Harness, running


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with running(tmp_path_factory.mktemp("gateway")) as harness:
        yield harness


@pytest.fixture(scope="module")
def concurrent_client(request: pytest.FixtureRequest, harness: Harness) -> Iterator[ConcurrentClient]:
    """Return a client of the gate that the module names in `GATE`."""
    with open_client(harness, request.module.GATE) as found:
        yield found
