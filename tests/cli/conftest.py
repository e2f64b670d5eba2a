"""Fixtures: the `edge` command and a gateway for it."""

import pytest
from edge_command import Edge, launch


@pytest.fixture
def edge(tmp_path):
    command = Edge(tmp_path / "home")
    command.home.mkdir()
    yield command
    command.end()


@pytest.fixture(scope="module")
def shared_edge(tmp_path_factory):
    command = Edge(tmp_path_factory.mktemp("home"))
    yield command
    command.end()


@pytest.fixture(scope="module")
def gateway(shared_edge, tmp_path_factory):
    """A gateway that the tests of a module share. They change only its graph."""
    return launch(shared_edge, tmp_path_factory.mktemp("gateway") / "data", EDGE__HOST__ENABLED="false")
