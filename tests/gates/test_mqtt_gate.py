"""The SE protocol over MQTT: real brokers, real clients, a whole gateway."""

import pytest
from mqtt_house import ALL, MqttClient, house, port_of

from tests.support.processes import Mosquitto


@pytest.fixture
def mosquitto(tmp_path):
    broker = Mosquitto(tmp_path / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=["embedded", "mosquitto", "mosquitto 5"])
def gateway(request, tmp_path):
    """At each broker, and what is spoken to it."""
    if request.param == "embedded":
        url, version = "", "3.1.1"
    else:
        url, version = request.getfixturevalue("mosquitto").url, "5" if "5" in request.param else "3.1.1"
    with house(tmp_path, url, mqtt={"version": version}) as gateway:
        yield gateway


def test_query_update_subscribe_unsubscribe(gateway):
    with MqttClient(port_of(gateway)) as client:
        told = client.subscribe(alias="all")
        assert told["addedResults"] == {"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": []}}
        client.send({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 }", "alias": "write"}})
        messages = [client.receive(), client.receive()]
        assert {"updated": {"alias": "write", "added": 1, "removed": 0}} in messages
        notification = next(message["notification"] for message in messages if "notification" in message)
        assert (notification["sequence"], notification["alias"]) == (1, "all")
        assert client.ask({"query": {"sparql": ALL}})["result"]["results"]["bindings"][0]["s"]["value"] == "urn:a"
        answer = client.ask({"unsubscribe": {"spuid": told["spuid"]}})
        assert answer == {"unsubscribed": {"spuid": told["spuid"], "alias": "all"}}
