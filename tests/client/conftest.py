"""Fixtures: a gateway in a separate process, with ports that stay the same over kills and restarts."""

import pytest
from client_gateway import Gateway


@pytest.fixture
def gateway(tmp_path):
    """A running gateway for one test."""
    process = Gateway(tmp_path / "gateway")
    process.start()
    yield process
    process.end()


@pytest.fixture
def absent_gateway(tmp_path):
    """A gateway that has not been started."""
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
    """The gateway that the tests of a module share, with an empty graph."""
    shared_gateway.clear()
    return shared_gateway
