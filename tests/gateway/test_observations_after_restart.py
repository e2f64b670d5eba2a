"""Readings that wait in the broker while the gateway is stopped are elements of the stream of observations, too."""

from __future__ import annotations

from pathlib import Path

import httpx
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.processes import GatewayProcess, Mosquitto
from tests.support.waiting import wait_for

MAPPING = """[[mapping]]
topic = "room/{room}"
observation = "http://example.org/{room}"
datatype = "integer"
"""
QUERY = (
    "REGISTER QUERY last AS SELECT ?v FROM STREAM <urn:edge:stream:observations> [RANGE 1h STEP 1h] "
    "{ ?s <http://www.w3.org/ns/sosa/hasSimpleResult> ?v }"
)
STREAM = "/streams/urn%3Aedge%3Astream%3Aobservations"
LAST = (
    "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
    "ASK {{ <http://example.org/1> sosa:hasResult/qudt:numericValue {} }}"
)
MANY = 500


def test_readings_that_waited_for_the_gateway_are_elements(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path / "mosquitto")
    data = tmp_path / "data"
    (data / "mappings").mkdir(parents=True)
    (data / "mappings" / "rooms.toml").write_text(MAPPING)
    gateway = GatewayProcess(data, {"EDGE__MQTT__BROKER": broker.url, "EDGE__HOST__ENABLED": "false"})
    broker.start()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(100)
    try:
        with httpx.Client(base_url=gateway.start()["http"], trust_env=False) as http:
            assert http.put("/queries/last", content=QUERY).status_code == 200
            # From its first subscription on, the broker stores readings for it.
            wait_for(lambda: http.get("/health").json()["mqtt"] == "connected", what="the subscription of the gateway")
        gateway.stop()
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        for sent in [client.publish("room/1", str(number), qos=1) for number in range(1, MANY + 1)]:
            sent.wait_for_publish(30)
        with httpx.Client(base_url=gateway.start()["http"], trust_env=False) as http:
            wait_for(
                lambda: http.get("/query", params={"query": LAST.format(MANY)}).json()["boolean"], what="the readings"
            )
            # A turn of the thread after the last one that can have got elements.
            http.get(STREAM)
            assert http.get(STREAM).json()["elements"] == MANY
    finally:
        client.disconnect()
        client.loop_stop()
        gateway.stop()
        broker.stop()
