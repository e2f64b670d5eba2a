"""The network between an MQTT client and its broker fails, and the will informs the gateway; or its own link fails."""

from __future__ import annotations

import pytest
from websockets.asyncio.client import connect

from tests.faults.device import Device
from tests.faults.monitored_gateway import Watched
from tests.faults.network_link import FAR, NEAR
from tests.gates.gate_client import Client, rows
from tests.support.processes import free_port
from tests.support.waiting import wait_for

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


def put(*numbers: int) -> str:
    return " ; ".join(f"INSERT DATA {{ <urn:set> <urn:has> {number} }}" for number in numbers)


@pytest.fixture
def place(cable, mosquitto, gateway):
    """Return a gateway at a Mosquitto, and the address of the broker for the far end."""
    port = free_port()
    broker = mosquitto(f"listener {port} {NEAR}")
    settings = {"EDGE__MQTT__BROKER": broker.url, "EDGE__MQTT_GATE__ENABLED": "always"}
    watched = Watched(gateway(**settings))
    wait_for(lambda: watched.metric("edge_mqtt_gate_connected"))
    return watched, broker.port, port


def subscriptions(watched: Watched) -> float:
    return watched.metric("edge_subscriptions", "mqtt")


def test_a_disconnected_client_is_detected_and_gets_a_merged_delta_on_return(place, cable):
    watched, near_port, far_port = place
    with Device("near", "127.0.0.1", near_port) as near:
        with cable.far():
            far = Device("far", NEAR, far_port, keepalive=1)
        with far:
            near.subscribe(VALUES)
            kept, lost = far.subscribe(VALUES, resume=True), far.subscribe("ASK { <urn:set> ?p ?o }")
            watched.update(put(1, 2))
            assert near.notification()["sequence"] == 1
            assert {far.notification()["spuid"], far.notification()["spuid"]} == {kept["spuid"], lost["spuid"]}
            far.subscribed.clear()
            cable.cut()
            # 1.5 times the keep-alive interval, after which the broker notices
            wait_for(lambda: watched.metric("edge_connections", "mqtt") == 1, what="the end of the session")
            wait_for(lambda: subscriptions(watched) == 1, what="the end of what nobody wants kept")
            wait_for(lambda: watched.metric("edge_parked_subscriptions", "mqtt") == 1, what="the suspended one")
            for change in (put(3, 4), "DELETE DATA { <urn:set> <urn:has> 3 }", "DELETE DATA { <urn:set> <urn:has> 1 }"):
                watched.update(change)
            assert [near.notification()["sequence"] for _ in range(3)] == [2, 3, 4]
            cable.mend()
            assert far.subscribed.wait(60)
            missed = far.subscribe(VALUES, spuid=kept["spuid"], sequence=1)
            assert (missed["spuid"], missed["sequence"], missed["merged"]) == (kept["spuid"], 4, 3)
            assert (rows(missed["addedResults"]), rows(missed["removedResults"])) == ([("4",)], [("1",)])
            watched.update(put(5))
            assert (far.notification()["sequence"], near.notification()["sequence"]) == (5, 5)


MAPPING = """
[[mapping]]
topic = "sensor/{number}"
observation = "http://example.org/{number}"
"""
READINGS = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?v { ?o a sosa:Observation ; sosa:hasResult ?q . ?q qudt:numericValue ?v }"""


async def test_a_gateway_cut_off_from_its_broker_gets_all_readings_once_later(cable, mosquitto, gateway):
    """The broker is at the far end, with the sensor, and queues the messages meanwhile."""
    with cable.far():
        port = free_port()
        broker = mosquitto(f"listener {port} {FAR}")
        sensor = Device("sensor", "127.0.0.1", broker.port)
    settings = {"EDGE__MQTT__KEEPALIVE": "1", "EDGE__MQTT__RECONNECT_MIN": "0.1", "EDGE__MQTT__RECONNECT_MAX": "0.2"}
    process = gateway(EDGE__MQTT__BROKER=f"mqtt://{FAR}:{port}", **settings)
    (process.data_dir / "mappings").mkdir(parents=True)
    (process.data_dir / "mappings" / "sensors.toml").write_text(MAPPING)
    with sensor:
        watched = Watched(process)
        wait_for(lambda: watched.metric("edge_mqtt_connected"))
        client = Client(await connect(watched.endpoints["ws"]))
        await client.subscribe(READINGS)
        seen = []
        for value in range(1, 201):
            sensor.client.publish("sensor/1", str(value), 1).wait_for_publish(20)
            if value == 50:
                cable.cut()
            if value == 100:
                wait_for(lambda: watched.ask("/health")[1]["mqtt"] == "disconnected", what="the loss of the broker")
                cable.mend()
        while len(seen) < 200:
            seen += [int(number) for (number,) in rows((await client.notification())["addedResults"])]
        assert seen == list(range(1, 201))
        await client.socket.close()
