"""Fixtures for the tests of the adapters: a real engine and real Mosquitto processes."""

import pytest

from edge.adapters.observations import Observations
from edge.engine.start import open_engine
from tests.support.processes import Mosquitto


@pytest.fixture
def engine():
    engine = open_engine(None)
    yield engine
    assert engine.close()


@pytest.fixture
def observations(engine):
    observations = Observations(engine)
    observations.start()
    yield observations
    observations.close()


@pytest.fixture
def mosquitto(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()
