"""Edge nodes at Mosquitto and at the embedded broker, with the gateway as a process."""

import json
import time

import httpx
import paho.mqtt.client as paho
import pytest

from tests.sparkplug import tahu
from tests.sparkplug.edge_node import EdgeNode
from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import wait_for

PREFIXES = """PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt-1-1: <http://qudt.org/1.1/schema/qudt#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
PREFIX time: <http://www.w3.org/2006/time#>
"""
SETTINGS = {
    "EDGE__SPARKPLUG__ENABLED": "true",
    "EDGE__SPARKPLUG__HOST_ID": "gateway",
    "EDGE__SPARKPLUG__PRIMARY": "true",
    "EDGE__SPARKPLUG__STORE": "true",
    "EDGE__SPARKPLUG__WRITABLE": '["Plant/*/Oven/Setpoints/*"]',
    "EDGE__SPARKPLUG__REORDER_TIMEOUT": "0.2",
    "EDGE__SPARKPLUG__REBIRTH_INTERVAL": "0.05",
    "EDGE__HOST__ENABLED": "false",
    "EDGE__COAP__ENABLED": "false",
    "EDGE__MAPPINGS__RELOAD_INTERVAL": "0",
}
OVEN = "Plant/Line1/Oven"


def fill_node(payload) -> None:
    tahu.metric(payload, 41.5, tahu.FLOAT, name="Board/Temperature", alias=1, unit="°C")


def fill_oven(payload) -> None:
    tahu.metric(payload, 180.25, tahu.DOUBLE, name="Inputs/Temperature", alias=2, unit="°C")
    tahu.metric(payload, -5, tahu.INT16, name="Inputs/Level", alias=3)
    tahu.metric(payload, 200, tahu.INT32, name="Setpoints/Temperature", alias=4, unit="°C")
    tahu.metric(payload, value=False, datatype=tahu.BOOLEAN, name="Setpoints/Fan", alias=5)
    tahu.metric(payload, b"\x01", tahu.BYTES, name="Camera/Image", alias=6)
    values = {tahu.FLOAT: 1.5, tahu.DOUBLE: 2.5, tahu.BOOLEAN: True, tahu.DATETIME: 1_700_000_000_123}
    for datatype in range(tahu.INT8, tahu.UUID + 1):
        value = values.get(datatype, "text" if datatype >= tahu.STRING else 1)
        tahu.metric(payload, value, datatype, name=f"All/{datatype}")


class Plant:
    """A gateway, its broker, and an edge node with a device."""

    def __init__(self, directory, mosquitto: Mosquitto | None) -> None:
        broker = {} if mosquitto is None else {"EDGE__MQTT__BROKER": mosquitto.url}
        self.process = GatewayProcess(directory / "data", {**SETTINGS, **broker})
        self.mosquitto = mosquitto
        self.start()
        self.node = EdgeNode(self.port, "Plant", "Line1", fill=fill_node, device="Oven", fill_device=fill_oven)
        self.node.connect()

    def start(self) -> None:
        endpoints = self.process.start()
        self.http = httpx.Client(base_url=endpoints["http"], timeout=20)
        self.port = self.mosquitto.port if self.mosquitto else int(endpoints["mqtt"].rpartition(":")[2])
        wait_for(lambda: "edge_sparkplug_connected 1.0" in self.http.get("/metrics").text, "the host is connected")

    def stop(self) -> None:
        self.node.close()
        self.http.close()
        self.process.stop()

    def ask(self, pattern: str, *variables: str) -> list[tuple[str, ...]]:
        text = f"{PREFIXES} SELECT {' '.join('?' + each for each in variables)} {{ {pattern} }}"
        rows = self.http.get("/query", params={"query": text}).raise_for_status().json()["results"]["bindings"]
        return [tuple(row.get(each, {}).get("value", "") for each in variables) for row in rows]

    def value(self, name: str, kind: str = "sparkplug") -> str:
        found = self.ask(f"<urn:sepa-edge:{kind}:{name}> sosa:hasResult/qudt-1-1:numericValue ?v", "v")
        return found[0][0] if found else ""

    def awaits(self, name: str, value: str, kind: str = "sparkplug") -> None:
        wait_for(lambda: self.value(name, kind) == value, f"{value} of {name}")

    def desire(self, name: str, value: str) -> None:
        text = f"INSERT DATA {{ <urn:sepa-edge:sparkplug:{OVEN}/{name}> <urn:sepa-edge:desired> {value} }}"
        self.http.post("/update", data={"update": text}).raise_for_status()

    def available(self, name: str, value: str) -> None:
        self.awaits(name, value, "sparkplug-available")

    def bad_values(self) -> str:
        return " ".join(each["reason"] for each in self.http.get("/api/bad-values").json())


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    broker = Mosquitto(tmp_path_factory.mktemp("broker") / "mosquitto")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def shared(mosquitto, tmp_path_factory):
    plant = Plant(tmp_path_factory.mktemp("plant"), mosquitto)
    yield plant
    plant.stop()


@pytest.fixture
def plant(shared):
    """The plant after a birth of its node."""
    shared.node.answers = True
    shared.node.births()
    shared.available(OVEN, "true")
    shared.awaits(f"{OVEN}/Inputs/Temperature", "180.25")
    return shared


def test_a_birth_becomes_observations(plant):
    assert plant.value("Plant/Line1/Board%2FTemperature") == "41.5"
    assert plant.value(f"{OVEN}/Inputs/Level") == "-5"
    assert plant.value(f"{OVEN}/Setpoints/Fan") == "false"
    wait_for(lambda: all(plant.value(f"{OVEN}/All/{number}") for number in range(1, 16)), "values of all datatypes")
    assert plant.value(f"{OVEN}/All/13") == "2023-11-14T22:13:20.123Z"
    about = plant.ask(
        f"""<urn:sepa-edge:sparkplug:{OVEN}/Inputs/Temperature> sosa:madeBySensor ?sensor ; rdfs:label ?label ;
        sosa:hasFeatureOfInterest ?place ; sosa:observedProperty ?property ; sosa:hasResult/qudt-1-1:unit ?unit""",
        *("sensor", "label", "place", "property", "unit"),
    )
    assert about == [
        (
            f"urn:sepa-edge:sparkplug:{OVEN}",
            "Inputs/Temperature of Oven",
            "urn:sepa-edge:place:Plant",
            "urn:sepa-edge:property:temperature",
            "http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        )
    ]
    assert plant.value("Plant/Line1", "sparkplug-available") == "true"
    assert not plant.ask("?o sosa:observedProperty <urn:sepa-edge:property:rebirth>", "o")
    faults = plant.http.get("/health").json()["mapping_faults"]
    assert any(each["file"] == OVEN and "Bytes" in each["reason"] for each in faults)


def test_an_alias_stands_for_the_metric_of_the_birth(plant):
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 181.5, alias=2))
    plant.awaits(f"{OVEN}/Inputs/Temperature", "181.5")
    before = plant.node.rebirths
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 1.5, alias=99))
    wait_for(lambda: plant.node.rebirths > before, "an unknown alias asks for a rebirth")


def test_a_gap_asks_for_a_rebirth_and_its_values_are_not_used(plant):
    before = plant.node.rebirths
    plant.node.answers = False
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 190.0, alias=2), lost=True)
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 191.0, alias=2))
    wait_for(lambda: plant.node.rebirths > before, "a request for a rebirth")
    plant.available(OVEN, "false")
    assert plant.value(f"{OVEN}/Inputs/Temperature") == "180.25"
    plant.node.answers = True
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 192.0, alias=2))
    plant.available(OVEN, "true")


def test_messages_in_another_order_are_put_in_order(plant):
    node = plant.node
    with node.lock:
        node.answers = False
        late = tahu.Payload(timestamp=time.time_ns() // 1_000_000, seq=node.seq)
        tahu.metric(late, 182.0, alias=2)
        node.seq += 1
        node.send("DDATA", lambda payload: tahu.metric(payload, 183.0, alias=2))
        node.publish("DDATA", late.SerializeToString())
    plant.awaits(f"{OVEN}/Inputs/Temperature", "183")


def test_a_lost_connection_makes_all_values_unavailable(plant):
    plant.node.lose_connection()
    plant.available("Plant/Line1", "false")
    plant.available(OVEN, "false")
    plant.node.bdseq += 1
    plant.node.connect()
    plant.node.births()
    plant.available(OVEN, "true")
    before = plant.node.rebirths
    plant.node.bdseq -= 1  # the death of an earlier connection comes late
    plant.node.publish("NDEATH", plant.node.death())
    plant.node.bdseq += 1
    wait_for(lambda: plant.node.rebirths > before, "another bdSeq asks for a rebirth")
    assert plant.value("Plant/Line1", "sparkplug-available") == "true"


def test_the_death_of_a_device_leaves_its_node_available(plant):
    plant.node.send("DDEATH")
    plant.available(OVEN, "false")
    assert plant.value("Plant/Line1", "sparkplug-available") == "true"


def test_past_values_do_not_replace_newer_ones(plant):
    def past(payload) -> None:
        for number in range(3):
            tahu.metric(payload, 20.0 + number, alias=2, timestamp=1_700_000_000_000 + number, is_historical=True)

    before = int(plant.http.get("/health").json()["outbox"]["observations"])
    plant.node.send("DDATA", past)
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 7, tahu.INT16, alias=3))
    plant.awaits(f"{OVEN}/Inputs/Level", "7")
    assert plant.value(f"{OVEN}/Inputs/Temperature") == "180.25"
    after = int(plant.http.get("/health").json()["outbox"]["observations"])
    assert after - before == 4


def test_wrong_values_are_listed_and_others_used(plant):
    def wrong(payload) -> None:
        tahu.metric(payload, 70_000, tahu.INT16, alias=3)
        payload.metrics.add(alias=2, datatype=tahu.STRING, string_value="hot")
        tahu.metric(payload, float("nan"), alias=2)
        tahu.metric(payload, value=True, datatype=tahu.BOOLEAN, alias=5)

    plant.node.send("DDATA", wrong)
    plant.awaits(f"{OVEN}/Setpoints/Fan", "true")
    listed = plant.bad_values()
    assert "70000 is not a value of Int16" in listed
    assert "not one of Double" in listed
    assert plant.value(f"{OVEN}/Inputs/Temperature") == "180.25"
    before = plant.node.rebirths
    plant.node.publish("DDATA", b"\x12\xff\xff\xff\xff\x0f")
    wait_for(lambda: plant.node.rebirths > before, "a damaged message asks for a rebirth")
    assert "ends after the payload" in plant.bad_values()


def test_a_client_sets_a_metric(plant):
    plant.node.commands.clear()
    plant.desire("Setpoints/Temperature", "-20")
    wait_for(lambda: plant.node.commands, "a command")
    (found,) = plant.node.commands
    assert (found.alias, found.HasField("name"), found.int_value, found.datatype) == (4, False, 2**32 - 20, tahu.INT32)
    wait_for(lambda: not plant.ask("?o <urn:sepa-edge:desired> ?v", "o"), "the desired value is deleted")
    answer = plant.http.get("/api/settable", params={"observation": f"urn:sepa-edge:sparkplug:{OVEN}/Inputs/Level"})
    assert answer.json() == {}


def test_a_command_waits_for_the_birth_of_its_device(plant):
    plant.node.send("DDEATH")
    plant.available(OVEN, "false")
    plant.node.commands.clear()
    plant.desire("Setpoints/Fan", "true")
    assert plant.ask("?o <urn:sepa-edge:desired> ?v", "v") == [("true",)]
    plant.node.births()
    wait_for(lambda: plant.node.commands, "the command after the birth")
    assert (plant.node.commands[0].alias, plant.node.commands[0].boolean_value) == (5, True)


def test_unknown_nodes_are_asked_for_their_birth(plant):
    other = EdgeNode(plant.port, "Plant", "Line2", fill=fill_node)
    other.connect()
    other.send("NDATA", lambda payload: tahu.metric(payload, 42.0, tahu.FLOAT, alias=1))
    plant.awaits("Plant/Line2/Board%2FTemperature", "41.5")
    assert other.rebirths == 1
    other.close()


def test_a_refused_birth_is_listed_and_not_asked_for_again(plant):
    def fill(payload) -> None:
        tahu.metric(payload, 1, tahu.INT16, name="Fan")

    other = EdgeNode(plant.port, "Plant", "Line3", fill=fill, device="Fan", fill_device=fill_oven)
    other.connect()
    other.births()
    other.send("DDATA", lambda payload: tahu.metric(payload, 42.0, tahu.DOUBLE, alias=2))
    other.send("NDATA", lambda payload: tahu.metric(payload, 2, tahu.INT16, name="Fan"))
    plant.awaits("Plant/Line3/Fan", "2")
    health = plant.http.get("/health").json()
    assert health["sparkplug"]["Plant/Line3/Fan"] == "refused: its node has a metric of the same name"
    assert "Plant/Line3/Fan" in [each["file"] for each in health["mapping_faults"]]
    assert other.rebirths == 0
    other.close()


def test_after_a_kill_births_are_known_and_asked_for_again(plant):
    state: list[dict] = []
    watcher = paho.Client(paho.CallbackAPIVersion.VERSION2)
    watcher.on_message = lambda _, __, message: state.append(json.loads(message.payload))
    watcher.connect("127.0.0.1", plant.port)
    watcher.loop_start()
    watcher.subscribe("spBv1.0/STATE/gateway", 1)
    wait_for(lambda: state and state[-1]["online"], "the host is online")
    born = state[-1]["timestamp"]
    wait_for(lambda: (plant.process.data_dir / "sparkplug.json").exists(), "stored births")
    plant.node.answers = False
    plant.process.kill()
    plant.http.close()
    wait_for(lambda: state[-1] == {"online": False, "timestamp": born}, "the will of the host")
    before = plant.node.rebirths
    plant.start()
    wait_for(lambda: state[-1]["online"], "the host is online again")
    wait_for(lambda: plant.node.rebirths > before, "a request for a rebirth")
    plant.available(OVEN, "false")
    # The alias of the old birth may have another meaning now.
    plant.node.send("DDATA", lambda payload: tahu.metric(payload, 5.0, alias=2))
    plant.node.answers = True
    plant.node.births()
    plant.available(OVEN, "true")
    assert plant.value(f"{OVEN}/Inputs/Temperature") == "180.25"
    # A late will of an earlier connection is corrected.
    watcher.publish("spBv1.0/STATE/gateway", '{"online": false, "timestamp": 1}', 1, retain=True)
    wait_for(lambda: {"online": False, "timestamp": 1} in state and state[-1]["online"], "the state is corrected")
    plant.http.close()
    plant.process.stop()
    wait_for(lambda: not state[-1]["online"], "the host is offline")
    plant.start()
    watcher.disconnect()
    watcher.loop_stop()


def test_the_embedded_broker_serves_edge_nodes(tmp_path):
    plant = Plant(tmp_path, None)
    try:
        plant.node.births()
        plant.awaits(f"{OVEN}/Inputs/Temperature", "180.25")
        plant.node.lose_connection()
        plant.available(OVEN, "false")
    finally:
        plant.stop()
