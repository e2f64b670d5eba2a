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


SETTINGS = {
    "EDGE__DISCOVERY__HOME_ASSISTANT": "true",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__COAP__ENABLED": "false",
    "EDGE__MAPPINGS__RELOAD_INTERVAL": "0",
}


def asked(http: httpx.Client, observation: str) -> str:
    """Return the value of an observation; empty without one."""
    pattern = f"<urn:sepa-edge:discovered:{observation}> sosa:hasResult/qudt-1-1:numericValue ?v"
    text = f"{PREFIXES} SELECT ?v {{ {pattern} }}"
    rows = http.get("/query", params={"query": text}).raise_for_status().json()["results"]["bindings"]
    return rows[0]["v"]["value"] if rows else ""


class Home:
    """A gateway with its embedded broker, and a client of both."""

    def __init__(self, directory) -> None:
        self.process = GatewayProcess(directory, SETTINGS)
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
        return asked(self.http, observation)

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


def test_a_switch_is_set_at_its_device(home):
    home.announce("switch", "k1_fan", name="Fan", stat_t="kitchen/fan", cmd_t="kitchen/fan/set", dev=KITCHEN)
    home.mqtt.subscribe("kitchen/fan/set", 1)
    home.publish("kitchen/fan", "OFF")
    home.awaits("switch/k1_fan", "false")
    fan = "urn:sepa-edge:discovered:switch/k1_fan"
    home.http.post("/update", data={"update": f"INSERT DATA {{ <{fan}> <urn:sepa-edge:desired> true }}"})
    wait_for(lambda: home.received["kitchen/fan/set"], what="the command")
    assert home.received["kitchen/fan/set"] == ["ON"]


def test_an_observation_is_there_before_its_first_value(home):
    home.announce("binary_sensor", "k1_door", name="Door", stat_t="kitchen/door", dev_cla="door", dev=KITCHEN)
    pattern = "<urn:sepa-edge:discovered:binary_sensor/k1_door> rdfs:label ?label"
    wait_for(lambda: home.ask(pattern, "label") == [("Door of Kitchen",)], what="the declared observation")


def test_an_unusable_announcement_is_listed_by_name_until_it_changes(home):
    home.announce("sensor", "k1_bad", name="Bad", stat_t="kitchen/bad", val_tpl="{{ value | regex_replace('a') }}")
    wait_for(home.faults, what="the fault")
    assert "regex_replace" in home.faults()["homeassistant/sensor/k1_bad/config"]
    home.announce("sensor", "k1_bad", name="Bad", stat_t="kitchen/bad", unit_of_meas="W")
    home.publish("kitchen/bad", "5")
    home.awaits("sensor/k1_bad", "5")
    assert home.faults() == {}


def test_values_count_after_a_restart_although_nothing_is_announced_again(home):
    home.announce("sensor", "k1_power", stat_t="kitchen/power", unit_of_meas="W", dev=KITCHEN)
    home.publish("kitchen/power", "5")
    home.awaits("sensor/k1_power", "5")
    home.stop()
    home.start()
    home.publish("kitchen/power", "6")
    home.awaits("sensor/k1_power", "6")
    # The broker has forgotten the announcement, so that this device can only remove it itself.
    home.publish("homeassistant/sensor/k1_power/config", "")
    home.publish("kitchen/power", "7")
    home.publish("kitchen/bad", "8")
    home.awaits("sensor/k1_bad", "8")
    assert home.value("sensor/k1_power") == "6"


def test_values_that_waited_in_a_broker_for_a_gateway_with_narrow_filters(tmp_path, mosquitto):
    broker = {"EDGE__MQTT__BROKER": mosquitto.url, "EDGE__MQTT__TOPICS": '["cellar/#"]'}
    device = paho.Client(paho.CallbackAPIVersion.VERSION2)
    device.connect("127.0.0.1", mosquitto.port)
    device.loop_start()

    def publish(topic: str, payload: str, *, retain: bool = False) -> None:
        device.publish(topic, payload, 1, retain).wait_for_publish(PATIENCE)

    # Both are there before the gateway: the announcement has to come first.
    publish("cellar/t", "11", retain=True)
    config = {"uniq_id": "c", "stat_t": "cellar/t", "unit_of_meas": "°C"}
    publish("homeassistant/sensor/c/config", json.dumps(config), retain=True)
    gateway = GatewayProcess(tmp_path / "data", {**SETTINGS, **broker})
    try:
        for value in ("11", "12"):
            with httpx.Client(base_url=gateway.start()["http"], timeout=20) as http:
                wait_for(lambda value=value, http=http: asked(http, "sensor/c") == value, what=value)
            gateway.stop()
            # It waits in the session of the gateway, and comes before all announcements.
            publish("cellar/t", "12", retain=True)
    finally:
        gateway.stop()
        device.disconnect()
        device.loop_stop()
