"""The network between an MQTT client and the broker breaks: its will tells the gateway."""

from __future__ import annotations

import pytest

from tests.faults.cable import NEAR
from tests.faults.device import Device
from tests.faults.watched import Watched
from tests.gates.gate_client import rows
from tests.support.processes import free_port, wait_for

VALUES = "SELECT ?n { <urn:set> <urn:has> ?n }"


def put(*numbers: int) -> str:
    return " ; ".join(f"INSERT DATA {{ <urn:set> <urn:has> {number} }}" for number in numbers)


@pytest.fixture
def place(cable, mosquitto, gateway):
    """A gateway that runs at a Mosquitto, and where that listens for the far end."""
    port = free_port()
    broker = mosquitto(f"listener {port} {NEAR}")
    settings = {"EDGE__MQTT__BROKER": broker.url, "EDGE__MQTT_GATE__ENABLED": "always"}
    watched = Watched(gateway(**settings))
    wait_for(lambda: watched.metric("edge_mqtt_gate_connected"))
    return watched, broker.port, port


def subscriptions(watched: Watched) -> float:
    return watched.metric("edge_subscriptions", "mqtt")


def test_a_client_that_is_cut_off_is_noticed_and_gets_the_net_change_when_it_is_back(place, cable):
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
            # 1.5 times the keep-alive: that is the broker's to find out.
            wait_for(lambda: watched.metric("edge_connections", "mqtt") == 1, 20, "the end of the session")
            assert subscriptions(watched) == 1
            assert watched.metric("edge_parked_subscriptions", "mqtt") == 1
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
