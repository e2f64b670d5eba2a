"""A gateway whose only mappings are those that devices announce, from outside: broker, SPARQL, restart."""

import json
from collections import defaultdict

import httpx
import paho.mqtt.client as paho
import pytest

from tests.support.processes import GatewayProcess
from tests.support.waiting import PATIENCE, wait_for

PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt-1-1: <http://qudt.org/1.1/schema/qudt#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
"""


class Home:
    """A gateway with its embedded broker, and a client of both."""

    def __init__(self, directory, **more: str) -> None:
        settings = {"EDGE__DISCOVERY__HOME_ASSISTANT": "true", "EDGE__HOST__ENABLED": "false"}
        settings |= {"EDGE__COAP__ENABLED": "false", "EDGE__MAPPINGS__RELOAD_INTERVAL": "0"}
        self.process = GatewayProcess(directory, settings | more)
        self.received: dict[str, list[str]] = defaultdict(list)
        self.start()

    def start(self) -> None:
        endpoints = self.process.start()
        self.http = httpx.Client(base_url=endpoints["http"], timeout=20)
        self.mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.mqtt.on_message = lambda _, __, message: self.received[message.topic].append(message.payload.decode())
        self.mqtt.connect("127.0.0.1", int(endpoints["mqtt"].rpartition(":")[2]))
        self.mqtt.loop_start()

    def stop(self) -> None:
        self.mqtt.disconnect()
        self.mqtt.loop_stop()
        self.http.close()
        self.process.stop()

    def publish(self, topic: str, payload: object, *, retain: bool = False) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self.mqtt.publish(topic, text, 1, retain).wait_for_publish(PATIENCE)

    def announce(self, component: str, ident: str, **config: object) -> None:
        self.publish(f"homeassistant/{component}/{ident}/config", {"uniq_id": ident, **config}, retain=True)

    def ask(self, pattern: str, *variables: str) -> list[tuple[str, ...]]:
        text = f"{PREFIXES} SELECT {' '.join('?' + each for each in variables)} {{ {pattern} }}"
        rows = self.http.get("/query", params={"query": text}).raise_for_status().json()["results"]["bindings"]
        return [tuple(row.get(each, {}).get("value", "") for each in variables) for row in rows]

    def value(self, observation: str) -> str:
        found = self.ask(f"<urn:sepa-edge:discovered:{observation}> sosa:hasResult/qudt-1-1:numericValue ?v", "v")
        return found[0][0] if found else ""

    def awaits(self, observation: str, value: str) -> None:
        wait_for(lambda: self.value(observation) == value, what=f"{value} of {observation}")

    def faults(self) -> dict[str, str]:
        listed = self.http.get("/health").json().get("mapping_faults", [])
        return {each["file"]: each["reason"] for each in listed}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    yield home
    home.stop()


KITCHEN = {"ids": ["k1"], "name": "Kitchen", "mf": "Example", "mdl": "T1"}


def test_a_sensor_announces_itself_and_its_first_value_counts(home):
    home.announce(
        "sensor",
        "k1_temperature",
        name="Temperature",
        stat_t="kitchen/state",
        val_tpl="{{ value_json.climate.temperature | float / 10 }}",
        dev_cla="temperature",
        unit_of_meas="°C",
        dev=KITCHEN,
    )
    home.publish("kitchen/state", {"climate": {"temperature": 215}})
    home.awaits("sensor/k1_temperature", "21.5")
    pattern = """?o rdfs:label ?label ; sosa:observedProperty ?property ; sosa:madeBySensor ?sensor ;
        sosa:hasFeatureOfInterest ?place ; sosa:hasResult/qudt-1-1:unit ?unit"""
    assert home.ask(pattern, "o", "label", "property", "sensor", "place", "unit") == [
        (
            "urn:sepa-edge:discovered:sensor/k1_temperature",
            "Temperature of Kitchen",
            "urn:sepa-edge:property:temperature",
            "urn:sepa-edge:discovered:device/k1",
            "urn:sepa-edge:place:Kitchen",
            "http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        )
    ]
    assert home.faults() == {}
