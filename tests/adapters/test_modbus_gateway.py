"""A gateway process with Modbus devices: values reach subscribers, `edge set` writes, commands survive kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from pymodbus.constants import ExcCodes

from edge.cli.health import health as health_command
from edge.cli.set_value import set_value
from edge.client import Client
from tests.adapters.modbus_simulator import Simulator, words
from tests.support.processes import GatewayProcess, free_port
from tests.support.waiting import wait_for

SETTINGS = {
    "EDGE__HOST__ENABLED": "false",
    "EDGE__MQTT__ENABLED": "false",
    "EDGE__MAPPINGS__RELOAD_INTERVAL": "0.1",
    "EDGE__MODBUS__TIMEOUT": "0.5",
    "EDGE__MODBUS__RECONNECT": "0.1",
    "EDGE__MODBUS__RECONNECT_MAX": "0.2",
}
HEATING = """
[[modbus]]
name = "heating"
host = "127.0.0.1"
port = PORT
interval = 0.1
registers = [
  { name = "flow", address = 0, table = "input", type = "float32", unit = "°C" },
  { name = "setpoint", address = 10, type = "int16", scale = 0.1, unit = "°C", write = { min = 5, max = 30 } },
  { name = "pump", address = 3, table = "coil", write = true },
]

[[actuator]]
name = "mode"
query = "SELECT ?mode { <urn:heating> <urn:mode> ?mode }"
topic = "modbus/heating/setpoint"
payload = "{mode}"
"""
VALUE = """
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?v { <urn:sepa-edge:modbus:heating/%s> sosa:hasResult/qudt:numericValue ?v }
"""


class Serving(GatewayProcess):
    """A gateway with a Modbus device."""

    def __init__(self, directory: Path, text: str) -> None:
        super().__init__(directory / "data", SETTINGS)
        self.file = self.data_dir / "mappings" / "devices.toml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(text)
        self.endpoints: dict[str, str] = {}

    def start(self) -> dict[str, str]:
        self.endpoints = super().start()
        return self.endpoints

    def get(self, path: str, **parameters: str):
        return httpx.get(f"{self.endpoints['http']}{path}", params=parameters).raise_for_status().json()

    def value(self, name: str) -> str | None:
        rows = self.get("/query", query=VALUE % name)["results"]["bindings"]
        return rows[0]["v"]["value"] if rows else None

    def update(self, text: str) -> None:
        httpx.post(f"{self.endpoints['http']}/update", data={"update": text}).raise_for_status()

    def run(self, command, *arguments: str):
        return CliRunner().invoke(command, [*arguments, "--data-dir", str(self.data_dir)])


@contextmanager
def serving(directory: Path, simulator: Simulator) -> Iterator[Serving]:
    gateway = Serving(directory, HEATING.replace("PORT", str(simulator.port)))
    gateway.start()
    try:
        yield gateway
    finally:
        assert gateway.stop() == 0


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(free_port()) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def gateway(simulator, tmp_path_factory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("gateway"), simulator) as gateway:
        yield gateway


async def test_a_register_becomes_a_row_of_a_subscriber(gateway, simulator):
    simulator.set(0, words("f", 40.25), "input")
    found = []
    async with Client(gateway.endpoints["http"]) as client, client.follow(property="flow") as feed:
        async for reading in feed:
            found.append((reading.observation, str(reading.value), reading.unit))
            if reading.value == Decimal("40.25"):
                simulator.set(0, words("f", 41.5), "input")
            elif reading.value == Decimal("41.5"):
                break
    assert found[-1] == ("urn:sepa-edge:modbus:heating/flow", "41.5", "http://qudt.org/1.1/vocab/unit#DegreeCelsius")


def test_edge_set_writes_a_register(gateway, simulator):
    wait_for(lambda: gateway.value("pump") is not None, what="the values")
    for name, value in (("heating/setpoint", "21.5"), ("heating/pump", "on")):
        result = gateway.run(set_value, name, value)
        assert result.exit_code == 0, result.output
    assert simulator.get(10) == [215]
    assert simulator.get(3, table="coil") == [1]
    wait_for(lambda: (gateway.value("setpoint"), gateway.value("pump")) == ("21.5", "true"), what="the new values")
    result = gateway.run(set_value, "heating/setpoint", "99")
    assert result.exit_code != 0
    assert simulator.get(10) == [215]


def test_edge_set_says_what_the_device_says(gateway, simulator):
    wait_for(lambda: gateway.value("setpoint") is not None, what="the values")
    simulator.refused[10] = ExcCodes.ILLEGAL_VALUE
    result = gateway.run(set_value, "heating/setpoint", "22.5")
    assert result.exit_code == 1, result.output
    assert "22.5 was refused: exception 3, illegal data value" in result.output
    assert "refused" in gateway.run(set_value, "heating/setpoint", "22.5").output
    simulator.refused.clear()
    simulator.silent.add(1)
    wait_for(lambda: gateway.value("available") == "false", what="the device is gone")
    result = gateway.run(set_value, "heating/setpoint", "23.5", "--wait", "0.1")
    assert result.exit_code == 1
    assert "heating is disconnected: 127.0.0.1" in result.output
    assert "no response within the timeout. It is written as soon as the device answers" in result.output
    simulator.silent.clear()
    wait_for(lambda: simulator.get(10) == [235], what="the register")


def test_an_actuator_writes_a_register(gateway, simulator):
    gateway.update("INSERT DATA { <urn:heating> <urn:mode> 19.5 }")
    wait_for(lambda: simulator.get(10) == [195], what="the register")
    gateway.update("DELETE WHERE { <urn:heating> <urn:mode> ?mode }")


def test_health_names_the_device(gateway, simulator):
    simulator.refused[10] = ExcCodes.ILLEGAL_ADDRESS
    without = {"heating": "connected: no value of setpoint"}
    wait_for(lambda: gateway.get("/health")["modbus"] == without, what="the value is missing")
    assert gateway.get("/health")["modbus_missing"] == {"heating": ["setpoint"]}
    simulator.refused.clear()
    wait_for(lambda: gateway.get("/health")["modbus"] == {"heating": "connected"}, what="it is connected")
    assert "heating" in gateway.run(health_command, "--json").output
    metrics = httpx.get(gateway.endpoints["http"] + "/metrics").text
    assert 'edge_modbus_connected{device="heating"} 1.0' in metrics


def test_a_second_device_of_the_name_is_a_fault(gateway):
    other = gateway.file.with_name("other.toml")
    other.write_text(gateway.file.read_text().partition("[[actuator]]")[0])
    faults = wait_for(lambda: gateway.get("/health")["mapping_faults"], what="the fault")
    assert "has the same name, and is used instead" in faults[0]["reason"]
    other.unlink()
    wait_for(lambda: not gateway.get("/health")["mapping_faults"], what="no fault")


def test_a_desired_value_waits_for_its_device_through_kill_9(tmp_path):
    simulator = Simulator(free_port())
    simulator.set(10, [200])
    with serving(tmp_path, simulator) as gateway:
        with simulator:
            wait_for(lambda: gateway.value("setpoint") in ("20", "20.0"), what="the value")
        wait_for(lambda: gateway.value("available") == "false", what="the device is gone")
        iri = "urn:sepa-edge:modbus:heating/setpoint"
        gateway.update(f"INSERT DATA {{ <{iri}> <urn:sepa-edge:desired> 25 }}")
        gateway.kill()
        gateway.start()
        assert gateway.get("/query", query=f"ASK {{ <{iri}> <urn:sepa-edge:desired> 25 }}")["boolean"]
        with simulator:
            wait_for(lambda: simulator.get(10) == [250], what="the register")
            query = f"ASK {{ <{iri}> <urn:sepa-edge:desired> ?any }}"
            wait_for(lambda: not gateway.get("/query", query=query)["boolean"], what="it is done")
        writes = [each for each in simulator.requests if each[1] == 6]
        assert set(writes) == {(1, 6, 10, 1)}, "a command can be repeated"
