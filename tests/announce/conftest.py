"""Fixtures for the tests of announcements: a real Mosquitto process."""

import pytest

from tests.support.processes import Mosquitto


@pytest.fixture
def mosquitto(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()
