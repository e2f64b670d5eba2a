"""`edge set`: a device gets the message for a value."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import paho.mqtt.client as paho
import pytest
from edge_command import launch

from tests.support.waiting import PATIENCE, wait_for

LAMP = "urn:sepa-edge:zigbee2mqtt:kitchen/lamp"
METER = """
[[mapping]]
topic = "meters/{id}/state"
payload = "json"
observation = "edge:meters:{id}/{member}"
sensor = "edge:meters:{id}"
[[mapping.readings]]
path = "level"
set = { topic = "zigbee2mqtt/meters/{id}/set", payload = { level = "{value}" }, min = 0 }
[[mapping.readings]]
path = "byte"
[mapping.readings.set]
topic = "zigbee2mqtt/meters/{id}/set"
payload = { b = "{value|u8}" }
encode = { path = "b", encoding = "hex" }
min = 0
"""
STATE = {"state": "OFF", "brightness": 10, "temperature": 20.5}


class Device:
    """A lamp: it reports its values, and records the messages that it receives."""

    def __init__(self, endpoint: str) -> None:
        self.told: list[tuple[str, object]] = []
        self._listens = False
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda client, *_: client.subscribe("zigbee2mqtt/+/+/set", 1)
        self._client.on_subscribe = self._subscribed
        self._client.on_message = lambda _, __, m: self.told.append((m.topic, json.loads(m.payload)))
        host, port = endpoint.removeprefix("mqtt://").split(":")
        self._client.connect(host, int(port))
        self._client.loop_start()
        wait_for(lambda: self._listens, what="the lamp listens")

    def _subscribed(self, *_: object) -> None:
        self._listens = True

    def report(self, topic: str, values: object) -> None:
        self._client.publish(topic, json.dumps(values), 1).wait_for_publish(PATIENCE)

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(scope="module")
def known(gateway) -> Iterator[Device]:
    """A lamp and a sensor whose values the gateway knows."""
    address = gateway.endpoints["http"] + "/api/mappings/meters"
    httpx.put(address, content=METER, headers={"Content-Type": "text/plain"}).raise_for_status()
    device = Device(gateway.endpoints["mqtt"])
    device.report("meters/m1/state", {"level": 1, "byte": 2})
    device.report("zigbee2mqtt/kitchen/lamp", STATE)
    device.report("zigbee2mqtt/hall", {"temperature": 20})
    wait_for(lambda: ":hall/" in select(gateway, "?x a <http://www.w3.org/ns/sosa/Observation>"), what="the values")
    yield device
    device.end()


@pytest.fixture
def lamp(known) -> Device:
    known.told.clear()
    return known


@pytest.fixture
def run(shared_edge, gateway):
    """Run a command with the gateway."""
    return lambda *arguments: shared_edge(*arguments, "--data-dir", gateway.data_dir)


def select(gateway, pattern: str) -> str:
    return httpx.get(gateway.endpoints["http"] + "/query", params={"query": f"SELECT ?x {{ {pattern} }}"}).text


@pytest.mark.parametrize(
    ("device", "value", "observation", "literal", "message"),
    [
        ("kitchen/lamp", "on", "state", "true", {"state": "ON"}),
        ("kitchen/lamp", "OFF", "state", "false", {"state": "OFF"}),
        (LAMP, "true", "state", "true", {"state": "ON"}),
        ("kitchen/lamp/brightness", "40", "brightness", "40", {"brightness": 40}),
        (f"{LAMP}/brightness", "1e2", "brightness", "100", {"brightness": 100}),
    ],
)
def test_the_device_gets_the_message(run, lamp, device, value, observation, literal, message):
    done = run("set", device, value)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"set {LAMP}/{observation} to {literal}\n", "")
    wait_for(lambda: lamp.told, what="the message")
    assert lamp.told == [("zigbee2mqtt/kitchen/lamp/set", message)]


def test_a_large_double_reaches_the_device(run, lamp):
    done = run("set", "m1/level", "1e308")
    assert (done.returncode, done.stdout, done.stderr) == (0, "set urn:sepa-edge:meters:m1/level to 1e+308\n", "")
    wait_for(lambda: lamp.told, what="the message")
    assert lamp.told == [("zigbee2mqtt/meters/m1/set", {"level": 1e308})]


def test_a_value_without_a_message_is_refused_with_the_reason(run, lamp, gateway):
    done = run("set", "m1/byte", "300", "--wait", "1")
    assert done.returncode == 1
    assert 'm1/byte to 300 was refused: "300" cannot be written as u8' in done.stderr
    httpx.post(gateway.endpoints["http"] + "/update", data={"update": "DELETE WHERE { ?o <urn:sepa-edge:desired> ?v }"})
    assert lamp.told == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("m1/level", "1e309"), 2, "1e309 is not possible: no double has this size (4.9e-324 to 1.8e308)"),
        (("kitchen/lamp", "40"), 2, "brightness (a number from 0 to 254), state (on or off); write DEVICE/VALUE-NAME"),
        (("kitchen/lamp/brightness", "255"), 2, "255 is not possible; it can be a number from 0 to 254"),
        (("kitchen/lamp/brightness", "-5"), 2, "-5 is not possible; it can be a number from 0 to 254"),
        (("kitchen/lamp/brightness", "-1.5e1"), 2, "-1.5e1 is not possible; it can be a number from 0 to 254"),
        (("kitchen/lamp/brightness", "4", "--wiat", "3"), 2, "--wiat"),
        (("kitchen/lamp/brightness", "NaN"), 2, "NaN is not possible; it can be a number from 0 to 254"),
        (("kitchen/lamp/brightness", "1e999999999"), 2, "1e999999999 is not possible; it can be a number from 0 to"),
        (("kitchen/lamp/state", "dim"), 2, "dim is not possible; it can be on or off"),
        (("hall", "20"), 1, "no value of urn:sepa-edge:zigbee2mqtt:hall can be set: its mapping has no `set`"),
        (("kitchen/lamb", "on"), 1, f"no device is called kitchen/lamb; similar or first ones: {LAMP}"),
        (("kitchen/lamp/colour", "4"), 1, f"{LAMP} has no value colour; its values: brightness, state, temperature\n"),
        (("kitchen/lamp/\x1b[2J", "on"), 1, f"{LAMP} has no value "),
        (("kitchen/lamp",), 2, "Missing argument 'VALUE'"),
    ],
)
def test_an_observation_that_cannot_be_set_is_refused_with_the_remedy(run, gateway, lamp, arguments, code, message):
    done = run("set", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "\x1b" not in done.stderr
    assert "urn:" not in select(gateway, "?x <urn:sepa-edge:desired> ?v")
    assert lamp.told == []


def test_a_value_waits_for_the_broker(shared_edge, tmp_path):
    """The broker cannot be reached: the command says so, and the value stays in the graph."""
    gateway = launch(
        shared_edge, tmp_path / "data", EDGE__HOST__ENABLED="false", EDGE__MQTT__BROKER="mqtt://127.0.0.1:1"
    )
    near = ("--data-dir", gateway.data_dir)
    shown = f"""PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
    INSERT DATA {{ <{LAMP}/state> a sosa:Observation ; sosa:madeBySensor <{LAMP}> ;
      monitor:hasMqttTopic "zigbee2mqtt/kitchen/lamp" }}"""
    assert shared_edge("update", shown, *near).returncode == 0
    done = shared_edge("set", "kitchen/lamp", "on", "--wait", "0.1", *near)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"sets {LAMP}/state to true was not acknowledged within 0.1 s" in done.stderr
    done = shared_edge("set", "kitchen/lamp", "off", "--wait", "0", *near)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"will set {LAMP}/state to false\n", "")
    wanted = select(gateway, f"<{LAMP}/state> <urn:sepa-edge:desired> ?x")
    assert "false" in wanted
    assert "true" not in wanted
    assert gateway.stop() == 0
