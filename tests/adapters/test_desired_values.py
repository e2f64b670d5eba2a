"""Desired values: they reach the device once, and are then gone from the graph."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from test_actuation import Devices

from tests.support.processes import GatewayProcess
from tests.support.waiting import PATIENCE, wait_for

LAMP = "urn:sepa-edge:zigbee2mqtt:lamp/state"
DIMMER = "urn:sepa-edge:zigbee2mqtt:lamp/brightness"


class Home:
    """A gateway with one lamp at a Mosquitto broker."""

    def __init__(self, directory, mosquitto, **more: str) -> None:
        settings = {"EDGE__MQTT__BROKER": mosquitto.url, "EDGE__MQTT__RECONNECT_MIN": "0.1", "EDGE__COAP__PORT": "0"}
        settings |= {"EDGE__MQTT__RECONNECT_MAX": "0.2", "EDGE__HOST__ENABLED": "false"}
        self.process = GatewayProcess(directory, settings | more)
        self.start()

    def start(self) -> None:
        self.http = httpx.Client(base_url=self.process.start()["http"], timeout=20)

    def close(self) -> None:
        self.http.close()
        self.process.stop()

    def want(self, observation: str, value: str) -> None:
        text = (
            f"PREFIX edge: <urn:sepa-edge:> DELETE {{ <{observation}> edge:desired ?old }} "
            f"INSERT {{ <{observation}> edge:desired {value} }} "
            f"WHERE {{ OPTIONAL {{ <{observation}> edge:desired ?old }} }}"
        )
        self.http.post("/update", data={"update": text}).raise_for_status()

    def wanted(self) -> list[str]:
        query = "SELECT ?v { ?o <urn:sepa-edge:desired> ?v }"
        answer = self.http.get("/query", params={"query": query}).json()
        return [each["v"]["value"] for each in answer["results"]["bindings"]]

    def settable(self, *observations: str) -> dict:
        return self.http.get("/api/settable", params={"observation": observations}).raise_for_status().json()


def report(devices: Devices, values: str, arrived: Callable[[], object]) -> None:
    """Report the values of the lamp until they have arrived: the gateway may not have subscribed yet."""

    def repeated() -> object:
        devices.client.publish("zigbee2mqtt/lamp", values, 1).wait_for_publish(PATIENCE)
        return arrived()

    wait_for(repeated, what="the values of the lamp")


@pytest.fixture
def home(tmp_path, mosquitto):
    home = Home(tmp_path / "data", mosquitto)
    yield home
    home.close()


@pytest.fixture
def devices(home, mosquitto):
    with Devices(mosquitto.port) as devices:
        report(devices, '{"state": "OFF", "brightness": 7, "linkquality": 3}', lambda: home.settable(LAMP))
        yield devices


def test_a_desired_value_reaches_the_device_and_is_gone(home, devices):
    assert home.settable(LAMP, DIMMER, "urn:sepa-edge:zigbee2mqtt:lamp/linkquality", "urn:x") == {
        LAMP: {"kind": "switch"},
        DIMMER: {"kind": "number", "min": 0.0, "max": 254.0, "step": 1.0},
    }
    home.want(LAMP, "true")
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"] == ['{"state":"ON"}'])
    wait_for(lambda: home.wanted() == [])
    home.want(DIMMER, "100")
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"][1:] == ['{"brightness":100}'])
    wait_for(lambda: home.wanted() == [])
    assert home.http.get("/api/unmapped").json() == []
    assert home.http.get("/api/bad-values").json() == []


def test_a_value_out_of_bounds_is_listed_and_moves_nothing(home, devices):
    home.want(DIMMER, "300")
    wait_for(lambda: home.http.get("/api/bad-values").json())
    (bad,) = home.http.get("/api/bad-values").json()
    assert "above the maximum 254" in bad["reason"]
    home.want("urn:sepa-edge:zigbee2mqtt:lamp/linkquality", "1")
    wait_for(lambda: len(home.http.get("/api/bad-values").json()) == 2)
    home.want(DIMMER, "9")
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"] == ['{"brightness":9}'])
    wait_for(lambda: home.wanted() == ["1"])


def test_a_desired_value_waits_for_the_broker_over_a_kill(home, devices, mosquitto):
    home.want(LAMP, "true")
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"] == ['{"state":"ON"}'])
    wait_for(lambda: home.wanted() == [])
    mosquitto.stop(kill=True)
    home.want(LAMP, "true")
    home.want(LAMP, "false")
    home.process.kill()
    home.http.close()
    before = devices.subscriptions
    mosquitto.start()
    wait_for(lambda: devices.subscriptions > before)
    home.start()
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"][1:] == ['{"state":"OFF"}'])
    wait_for(lambda: home.wanted() == [])
    # Nothing is sent again: a lamp that was switched by hand stays as it is.
    home.process.kill()
    home.http.close()
    home.start()
    home.want(DIMMER, "3")
    wait_for(lambda: devices.received["zigbee2mqtt/lamp/set"][2:] == ['{"brightness":3}'])


def test_a_mapping_written_later_sends_the_waiting_values(home, devices):
    home.http.put(
        "/api/mappings/heater", content='[[mapping]]\ntopic = "heater/{id}"\nobservation = "edge:{id}"\n'
    ).raise_for_status()
    devices.client.publish("heater/h1", "19", 1)
    wait_for(
        lambda: (
            "h1"
            in home.http.get(
                "/query", params={"query": "SELECT ?o { ?o a <http://www.w3.org/ns/sosa/Observation> }"}
            ).text
        )
    )
    home.want("urn:sepa-edge:h1", "21.5")
    wait_for(lambda: home.http.get("/api/bad-values").json())
    home.http.put(
        "/api/mappings/heater",
        content='[[mapping]]\ntopic = "heater/{id}"\nobservation = "edge:{id}"\nset = { topic = "heater/{id}/set" }\n',
    ).raise_for_status()
    wait_for(lambda: devices.received["heater/h1/set"] == ["21.5"])
    wait_for(lambda: home.wanted() == [])


DOWNLINKS = """
[[mapping]]
topic = "application/{application}/device/{eui}/event/up"
payload = "json"
observation = "edge:{eui}/{member}"
readings = [
  { path = "object.valve", datatype = "boolean", set = { topic = "application/{application}/device/{eui}/command/down", payload = { devEui = "{eui}", fPort = 10, data = "03 {value|u8}" }, encode = { path = "data", encoding = "base64" } } },
  { path = "object.interval", set = { topic = "application/{application}/device/{eui}/command/down", qos = 0, payload = { devEui = "{eui}", fPort = 10, data = "01 {value|u16}" }, encode = { path = "data", encoding = "base64" }, min = 1, max = 1440 } },
  { path = "object.level", set = { topic = "application/{application}/device/{eui}/command/down", payload = { data = "{value|u8}" }, encode = { path = "data", encoding = "base64" } } },
]
"""  # noqa: E501  a table of TOML has one line


def test_the_bytes_of_a_downlink_reach_the_network_server(home, devices):
    home.http.put("/api/mappings/valve", content=DOWNLINKS).raise_for_status()
    up, down = (f"application/c0/device/0102030405060708/{each}" for each in ("event/up", "command/down"))
    valve, interval, level = (f"urn:sepa-edge:0102030405060708/{each}" for each in ("valve", "interval", "level"))
    devices.client.publish(up, '{"object": {"valve": false, "interval": 10, "level": 1}}', 1)
    wait_for(
        lambda: home.settable(valve).get(valve) == {"kind": "switch"} and len(home.settable(interval, level)) == 2,
        what="the values of the valve",
    )
    home.want(valve, "true")
    first = '{"devEui":"0102030405060708","fPort":10,"data":"AwE="}'
    wait_for(lambda: devices.received[down] == [first])
    home.want(interval, "300")
    wait_for(lambda: devices.received[down][1:] == ['{"devEui":"0102030405060708","fPort":10,"data":"AQEs"}'])
    wait_for(lambda: home.wanted() == [])  # also that of QoS 0
    assert home.http.get("/api/bad-values").json() == []
    # As an integer it would stop the gateway.
    home.want(level, '"1e1000000"')
    wait_for(lambda: "cannot be written as u8" in home.http.get("/api/bad-values").text)
    home.want(valve, "false")
    wait_for(lambda: devices.received[down][2:] == ['{"devEui":"0102030405060708","fPort":10,"data":"AwA="}'])
    assert home.http.get("/api/unmapped").json() == []


def test_desired_values_can_be_turned_off(tmp_path, mosquitto):
    home = Home(tmp_path / "data", mosquitto, EDGE__ACTUATION__DESIRED_VALUES="false")
    try:
        with Devices(mosquitto.port) as devices:
            query = {"query": f"ASK {{ <{LAMP}> ?p ?o }}"}
            report(devices, '{"state": "OFF"}', lambda: home.http.get("/query", params=query).json()["boolean"])
            assert home.settable(LAMP) == {}
            home.want(LAMP, "true")
            devices.client.publish("marker", "1", 1)
            wait_for(lambda: devices.received["marker"])
            assert home.wanted() == ["true"]
            assert devices.received["zigbee2mqtt/lamp/set"] == []
    finally:
        home.close()
