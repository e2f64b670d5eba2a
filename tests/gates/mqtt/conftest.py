"""Brokers, and a gateway at each of them."""

import pytest
from mqtt_harness import running_gateway

from tests.support.processes import Mosquitto


@pytest.fixture
def mosquitto(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["embedded", "mosquitto", "mosquitto 5"])
def gateway(request, tmp_path):
    """Run a gateway at each broker; return it with a client."""
    if request.param == "embedded":
        url, version = "", "3.1.1"
    else:
        url, version = request.getfixturevalue("mosquitto").url, "5" if "5" in request.param else "3.1.1"
    with running_gateway(tmp_path, url, mqtt={"version": version}, mqtt_gate={"query_interval": 0.1}) as gateway:
        yield gateway
