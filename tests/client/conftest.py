"""Fixtures: a gateway as a process of its own, on ports that stay the same when it is killed and started again."""

import pytest
from client_gateway import Gateway


@pytest.fixture
def gateway(tmp_path):
    """A gateway of the test's own, running."""
    process = Gateway(tmp_path / "gateway")
    process.start()
    yield process
    process.end()


@pytest.fixture
def absent_gateway(tmp_path):
    """One that is not there yet."""
    process = Gateway(tmp_path / "gateway")
    yield process
    process.end()


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory):
    process = Gateway(tmp_path_factory.mktemp("gateway"))
    process.start()
    yield process
    process.end()


@pytest.fixture
def empty_gateway(shared_gateway):
    """The gateway that the tests of a module share, without triples."""
    shared_gateway.clear()
    return shared_gateway
